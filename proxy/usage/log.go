package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// QueueBytes is how many bytes of lines may wait for the disk; what comes beyond is dropped and
	// counted.
	QueueBytes = 16 << 20
	queueLines = 16 << 10
	batchBytes = 256 << 10
	// complainEvery is the shortest time between two lines in the process' log about lines that
	// were dropped.
	complainEvery = time.Minute
)

// Options are where and how much a Log writes.
type Options struct {
	// Path is the file; its folder must exist.
	Path string
	// MaxSize is the size in bytes at which a new file is begun; > 0. A single longer line has a
	// file for itself.
	MaxSize int64
	// MaxFiles is how many files are kept, the open one included; > 0. Older ones are Path with .1
	// (the youngest), .2 and so on behind it.
	MaxFiles int
	// Metrics may be nil: then nothing is counted.
	Metrics *Metrics
	// Logger may be nil: then nothing is said.
	Logger *slog.Logger

	open opener // for tests of disks that fail; nil opens files
}

// Log writes records. A nil *Log takes and discards them.
type Log struct {
	metrics *Metrics
	logger  *slog.Logger
	file    *rotating
	queue   chan []byte
	waiting atomic.Int64 // bytes in the queue
	dropped atomic.Int64 // lines since the last complaint
	losses  losses
	lastErr atomic.Pointer[error]
	shares  shares
	trouble chan struct{} // holds one token where there is something to complain of
	done    chan struct{}

	mu     sync.RWMutex // guards closed, and that nobody sends into a closed queue
	closed bool
}

// Open opens the file, or makes it with mode 0600, and starts the writer, which Close ends. A file
// to which another process writes is refused; Logs of one process may share one for a while, as a
// reload needs it.
func Open(o Options) (*Log, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.open == nil {
		o.open = openFile
	}
	l := &Log{
		metrics: o.Metrics,
		logger:  o.Logger,
		file:    newRotating(o),
		queue:   make(chan []byte, queueLines),
		trouble: make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	if err := l.file.ensure(); err != nil {
		return nil, fmt.Errorf("usage_log.path: %w; it must name a file in a folder that exists and may be written", err)
	}
	go l.run() // ended and waited for by Close
	return l, nil
}

// check tells what is missing.
func (o Options) check() error {
	if o.Path == "" || o.MaxSize <= 0 || o.MaxFiles <= 0 {
		return errors.New("usage log: path, max_size and max_files are needed, the last two above zero")
	}
	return nil
}

// resize makes the log keep to another size and number of files from its next line on.
func (l *Log) resize(o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	l.file.maxSize.Store(o.MaxSize)
	l.file.maxFiles.Store(int64(o.MaxFiles))
	return nil
}

// Write queues the record and returns at once. The record is not kept. After Close, and where the
// queue is full, the record is dropped and counted; where its caller has had its share of the log,
// it goes without what makes it long.
func (l *Log) Write(r *Record) {
	if l == nil {
		return
	}
	line := r.Line()
	if fate := l.shares.take(r, len(line), l.file.share(), time.Now()); fate != whole {
		l.metrics.shortened.Inc()
		line = shortened(*r, fate).Line()
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed || l.waiting.Add(int64(len(line))) > QueueBytes {
		if !l.closed {
			l.waiting.Add(-int64(len(line)))
		}
		l.drop(1)
		return
	}
	select {
	case l.queue <- line:
	default:
		l.waiting.Add(-int64(len(line)))
		l.drop(1)
	}
}

// Close takes no more records, writes those that are queued, and closes the file. It returns when
// that is done or ctx has ended; then it returns the context's error, and the writer ends as soon
// as the disk lets it. It may be called twice.
func (l *Log) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("usage log: %d bytes are not written yet: %w", l.waiting.Load(), context.Cause(ctx))
	}
}

func (l *Log) drop(lines int) {
	l.shares.forget()
	l.metrics.dropped.Add(float64(lines))
	l.losses.add(int64(lines), time.Now())
	l.dropped.Add(int64(lines))
	l.wake()
}

func (l *Log) failed(err error) {
	l.metrics.errors.Inc()
	l.lastErr.Store(&err)
	l.wake()
}

func (l *Log) wake() {
	select {
	case l.trouble <- struct{}{}:
	default: // it is awake already
	}
}

// run writes what is queued until the queue is closed and empty.
func (l *Log) run() {
	defer close(l.done)
	var complaints sync.WaitGroup
	stop := make(chan struct{})
	complaints.Go(func() { l.complainUntil(stop) })
	defer complaints.Wait()
	defer close(stop)
	for line := range l.queue {
		l.writeBatch(line)
	}
	if line := l.losses.line(time.Now(), 0); line != nil {
		if written, err := l.file.write(line); !written {
			l.failed(err)
		}
	}
	if err := l.file.close(); err != nil {
		l.failed(err)
	}
}

// writeBatch writes the line and whatever else waits, up to batchBytes in one call. A lone line is
// written at once, so that it can be read at once.
func (l *Log) writeBatch(first []byte) {
	batch, lines := first, 1
	flush := func() {
		told := l.losses.line(time.Now(), complainEvery)
		written, err := l.file.write(append(told, batch...))
		if err != nil {
			l.failed(err)
		}
		if written {
			l.metrics.lines.Add(float64(lines))
		} else {
			l.losses.untold(told)
			l.drop(lines)
		}
		if n := l.file.emptied; n > 0 {
			l.file.emptied = 0
			l.shares.forget()
			l.losses.add(n, time.Now())
		}
		l.waiting.Add(-int64(len(batch)))
		batch, lines = nil, 0
	}
	for {
		select {
		case line, ok := <-l.queue:
			if !ok {
				flush()
				return // run sees the closed queue next
			}
			if len(batch)+len(line) > batchBytes || !l.file.fits(len(batch)+len(line)) {
				flush()
			}
			batch = append(batch, line...)
			lines++
		default:
			flush()
			return
		}
	}
}

// complainUntil says at once that lines are missing, and then at most once in complainEvery. It is
// a goroutine of its own since the writer may be stuck in a call to a disk that stands still, which
// is when there is something to say.
func (l *Log) complainUntil(stop <-chan struct{}) {
	for {
		select {
		case <-l.trouble:
			l.complain()
		case <-stop:
			l.complain()
			return
		}
		pause := time.NewTimer(complainEvery)
		select {
		case <-pause.C:
		case <-stop:
			pause.Stop()
			l.complain()
			return
		}
	}
}

// complain says how many lines are missing since the last time, if any are.
func (l *Log) complain() {
	n, err := l.dropped.Swap(0), l.lastErr.Swap(nil)
	if n == 0 && err == nil {
		return
	}
	attrs := []any{"path", l.file.path, "dropped_lines", n}
	if err != nil {
		attrs = append(attrs, "err", *err)
	}
	l.logger.Warn("The usage log is incomplete; requests are served as before", attrs...)
}
