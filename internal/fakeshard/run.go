package fakeshard

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errCut says that the script itself has ended the connection.
var errCut = errors.New("the script ended the connection")

// An execution runs a script for one request. rec is nil for a script that runs before a request
// was read.
type execution struct {
	*conn
	ctx context.Context // ends with the watch of the peer, which lives as long as the execution
	rec *Record
	response
	spoke bool // a step has given (part of) an answer, so none must be added
}

// A response is the state of one answer on the wire.
type response struct {
	status   int
	header   http.Header
	skew     time.Duration
	flood    int64 // bytes of header lines to add
	framing  framing
	declared int64  // Content-Length; -1: none was declared
	badLen   string // what to send as Content-Length instead
	headSent bool
	rawSent  bool
	bodiless bool // HEAD
	old      bool // HTTP/1.0
	keep     bool // the connection can be used again
	sent     int64

	limit   int64 // -1: none
	atLimit string
	drip    rate

	zip    []*gzip.Writer // the last one is written to, the first one writes to the connection
	zipCut bool
}

type framing int

const (
	frameUndecided framing = iota
	frameChunked
	frameLength
	frameNone
)

// run does the steps and then what the language promises for the end of a script.
func (x *execution) run(script Script) error {
	if err := x.steps(script); err != nil {
		return err
	}
	if !x.spoke {
		if err := x.answer(x.s.healthy(x.rec)); err != nil {
			return err
		}
	}
	return x.finish()
}

func (x *execution) steps(script Script) error {
	for _, st := range script {
		if err := x.step(st); err != nil {
			return err
		}
	}
	return nil
}

// step does one step. Its arguments were validated, so reading them cannot fail. The words that are
// not of time and of the connection are headStep's and bodyStep's.
func (x *execution) step(st Step) error {
	arg := st.arg
	switch st.Op {
	case "status", "redirect", "flush", "send", "answer", "error", "generate", "garbage", "raw", "badchunk", "truncate":
		x.spoke = true
	}
	switch st.Op {
	case "delay":
		d, _ := argDuration(arg(0, ""))
		return x.sleep(d)
	case "compute":
		d, _ := argDuration(arg(0, ""))
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.s.stop:
			return errStopped
		}
		return context.Cause(x.ctx)
	case "wait":
		x.s.mu.Lock()
		gate := x.s.gate(arg(0, ""))
		x.s.mu.Unlock()
		select {
		case <-gate:
			return nil
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
	case "stall":
		return x.stall()
	case "reset":
		_ = x.bw.Flush() // the peer may be gone, which is no matter now
		x.reset()
		return errCut
	case "close":
		_ = x.bw.Flush() // likewise
		return errCut
	case "truncate":
		if err := x.head(); err != nil {
			return err
		}
		_ = x.bw.Flush()
		return errCut
	case "raw":
		x.rawSent = true
		return x.wire(arg(0, ""))
	}
	return x.headStep(st)
}

// headStep does a step that is of the head or of the framing.
func (x *execution) headStep(st Step) error {
	arg := st.arg
	switch st.Op {
	case "status":
		x.status, _ = argStatus(arg(0, ""))
	case "header":
		x.header.Add(st.Args[0], strings.Join(st.Args[1:], " "))
	case "skew":
		x.skew, _ = argSignedDuration(arg(0, ""))
	case "flood":
		x.flood, _ = argSize(arg(0, ""))
	case "redirect":
		x.status, _ = argStatus(arg(1, "302"))
		x.header.Set("Location", arg(0, "http://"+x.rec.Host+x.rec.Path+"?"+x.rec.RawQuery))
	case "flush":
		if err := x.head(); err != nil {
			return err
		}
		return x.bw.Flush()

	case "chunked":
		x.framing = frameChunked
	case "length":
		x.framing = frameLength
		x.declared, _ = argSize(arg(0, ""))
	case "badlength":
		x.framing, x.badLen, x.keep = frameNone, arg(0, "12abc"), false
	case "badchunk":
		x.framing = frameChunked
		if err := x.head(); err != nil {
			return err
		}
		if err := x.wire("this is no size\r\n"); err != nil {
			return err
		}
		return errCut
	case "unframed":
		x.framing, x.keep = frameNone, false
	default:
		return x.bodyStep(st)
	}
	return nil
}

// bodyStep does a step that is of the body.
func (x *execution) bodyStep(st Step) error {
	arg := st.arg
	switch st.Op {
	case "send":
		return x.body([]byte(arg(0, "")))
	case "answer":
		return x.answer(x.s.healthy(x.rec))
	case "error":
		code, _ := argStatus(arg(0, ""))
		return x.answer(errorAnswer(code, arg(1, ""), strings.Join(st.Args[2:], " ")))
	case "generate":
		size, _ := argSize(arg(0, ""))
		return x.generate(size, arg(1, shapeFor(x.s, x.rec)))
	case "garbage":
		return x.garbage(arg(0, "bytes"))

	case "gzip":
		return x.gzip(arg(0, "on"), arg(1, "10GiB"))
	case "drip":
		x.drip, _ = argRate(arg(0, ""))
	case "limit":
		x.limit, _ = argSize(arg(0, ""))
		x.atLimit = arg(1, "")
	}
	return nil
}

// arg is an argument, def where the step has not so many.
func (st Step) arg(i int, def string) string {
	if i < len(st.Args) {
		return st.Args[i]
	}
	return def
}

func (x *execution) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
}

func (x *execution) stall() error {
	if err := x.bw.Flush(); err != nil {
		return err
	}
	<-x.ctx.Done()
	return context.Cause(x.ctx)
}

// wire writes to the connection as it is.
func (x *execution) wire(text string) error {
	if _, err := x.bw.WriteString(text); err != nil {
		return err
	}
	return x.bw.Flush()
}

// setDefault sets a header that the script has not set.
func (r *response) setDefault(name, value string) {
	if _, ok := r.header[http.CanonicalHeaderKey(name)]; !ok {
		r.header.Set(name, value)
	}
}

// head writes status line and headers, once.
func (x *execution) head() error {
	if x.headSent || x.rawSent {
		return nil
	}
	x.headSent = true
	if x.status == 0 {
		x.status = http.StatusOK
	}
	if x.status == http.StatusNoContent || x.status == http.StatusNotModified {
		x.bodiless = true
	}
	if x.framing == frameUndecided {
		x.framing = frameChunked
	}
	if x.old && x.framing == frameChunked {
		x.framing, x.keep = frameNone, false
	}
	x.setDefault("Content-Type", "application/json")
	x.setDefault("Date", time.Now().Add(x.skew).UTC().Format(http.TimeFormat))
	text := http.StatusText(x.status)
	if text == "" {
		text = "Unknown"
	}
	fmt.Fprintf(x.bw, "HTTP/1.1 %d %s\r\n", x.status, text)
	names := make([]string, 0, len(x.header))
	for name := range x.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range x.header[name] {
			fmt.Fprintf(x.bw, "%s: %s\r\n", name, v)
		}
	}
	for i := 0; x.flood > 0; i++ {
		n, err := fmt.Fprintf(x.bw, "X-Flood-%08d: %032d\r\n", i, i)
		if err != nil {
			return err
		}
		x.flood -= int64(n)
	}
	switch {
	case x.badLen != "":
		fmt.Fprintf(x.bw, "Content-Length: %s\r\n", x.badLen)
	case x.framing == frameLength:
		fmt.Fprintf(x.bw, "Content-Length: %d\r\n", x.declared)
	case x.framing == frameChunked && !x.bodiless:
		x.bw.WriteString("Transfer-Encoding: chunked\r\n")
	}
	if strings.EqualFold(x.header.Get("Connection"), "close") {
		x.keep = false
	} else if !x.keep {
		x.bw.WriteString("Connection: close\r\n")
	}
	_, err := x.bw.WriteString("\r\n") // a bufio.Writer keeps the first error
	return err
}

// body sends a part of the body, compressed if the script says so.
func (x *execution) body(p []byte) error {
	if len(x.zip) == 0 {
		return x.plain(p)
	}
	if _, err := x.zip[len(x.zip)-1].Write(p); err != nil {
		return err
	}
	for _, z := range slices.Backward(x.zip) {
		if err := z.Flush(); err != nil { // so that what a step sends is sent when it ends
			return err
		}
	}
	return nil
}

// zipSink lets a gzip.Writer write into the body.
type zipSink struct{ x *execution }

func (z zipSink) Write(p []byte) (int, error) {
	if err := z.x.plain(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// plain sends bytes of the body as they are on the wire but for chunk framing, in the pieces and up
// to the limit that the script sets.
func (x *execution) plain(p []byte) error {
	if err := x.head(); err != nil {
		return err
	}
	if x.bodiless {
		return x.bw.Flush()
	}
	for {
		piece := p
		if x.drip.bytes > 0 && int64(len(piece)) > x.drip.bytes {
			piece = piece[:x.drip.bytes]
		}
		if x.limit >= 0 && int64(len(piece)) > x.limit-x.sent {
			piece = piece[:x.limit-x.sent]
		}
		if x.drip.bytes > 0 && len(piece) > 0 {
			if err := x.bw.Flush(); err != nil {
				return err
			}
			if err := x.sleep(x.drip.every); err != nil {
				return err
			}
		}
		if err := x.piece(piece); err != nil {
			return err
		}
		p = p[len(piece):]
		if x.limit >= 0 && x.sent >= x.limit {
			return x.stopAtLimit()
		}
		if len(p) == 0 {
			return nil
		}
	}
}

func (x *execution) stopAtLimit() error {
	switch x.atLimit {
	case "stall":
		return x.stall()
	case "reset":
		x.reset()
	}
	return errCut
}

// piece frames and writes bytes of the body.
func (x *execution) piece(p []byte) error {
	if len(p) > 0 {
		if x.framing == frameChunked {
			x.bw.WriteString(strconv.FormatInt(int64(len(p)), 16))
			x.bw.WriteString("\r\n")
		}
		x.bw.Write(p)
		if x.framing == frameChunked {
			x.bw.WriteString("\r\n")
		}
	}
	if err := x.bw.Flush(); err != nil { // a bufio.Writer keeps the first error
		return err
	}
	x.sent += int64(len(p))
	x.s.progress(x.rec, x.sent)
	return nil
}

// finish completes the response.
func (x *execution) finish() error {
	if x.rawSent && !x.headSent {
		return errCut // whatever was written, the script has to say when it is complete
	}
	for _, z := range slices.Backward(x.zip) {
		end := z.Close
		if x.zipCut {
			end = z.Flush
		}
		if err := end(); err != nil {
			return err
		}
	}
	if !x.headSent && x.framing == frameUndecided {
		x.framing, x.declared = frameLength, 0
	}
	if err := x.head(); err != nil {
		return err
	}
	if x.framing != frameLength && !x.bodiless {
		// The peer cannot know yet that this was all, so if it has left, it did not leave because
		// it was content.
		if err := context.Cause(x.ctx); err != nil {
			return err
		}
	}
	if x.framing == frameChunked && !x.bodiless {
		x.bw.WriteString("0\r\n\r\n")
	}
	if err := x.bw.Flush(); err != nil {
		return err
	}
	if x.framing == frameLength && x.sent != x.declared && !x.bodiless || x.badLen != "" {
		return errCut
	}
	return nil
}

// answer gives a whole response; what the script has set before stands.
func (x *execution) answer(a Answer) error {
	if x.status == 0 {
		x.status = a.Status
	}
	for name, values := range a.Header {
		for i, v := range values {
			if i == 0 {
				x.setDefault(name, v)
			} else {
				x.header.Add(name, v)
			}
		}
	}
	if x.framing == frameUndecided && len(x.zip) == 0 && !x.headSent {
		x.framing, x.declared = frameLength, int64(len(a.Body))
	}
	return x.body(a.Body)
}
