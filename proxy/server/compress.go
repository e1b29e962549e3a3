package server

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// Answers of the API are compressed for clients that ask for it, and only for these: it costs 4 ms
// of CPU for each megabyte of JSON and makes it a quarter of its size, which is worth it over a
// network and a loss over loopback. Who asks knows which of both it is.
//
// The coder is the outermost writer, below the deadlines of clientWriter and the first-bytes rule
// of merge.Writer, so both work as they do without it. Its end (the last block and the checksum) is
// written only after the request has ended well: an answer that is cut off lacks it, in the body as
// in the framing of HTTP, and never looks whole.

// smallAnswer is the size in bytes below which an answer is not worth a coder. Only answers that
// are held whole have a known size.
const smallAnswer = 1 << 10

// coderBytes is what one coder holds while it is at work, rounded up; a test measures it. It is
// taken from memory.budget, and where there is no room the answer goes out as it is.
const coderBytes = 832 << 10

// zstdWindow is how far back zstd looks, for us and for the client that inflates it. More makes our
// answers no smaller.
const zstdWindow = 64 << 10

// coding is how an answer is written.
type coding uint8

const (
	uncoded coding = iota
	gzipped
	zstandard
)

// String is the coding's name in Content-Encoding.
func (c coding) String() string { return [...]string{"identity", "gzip", "zstd"}[c] }

// coder is a compressor that can be used again. Reset(nil) forgets what it had.
type coder interface {
	io.WriteCloser
	Reset(io.Writer)
	Flush() error
}

// coders are idle ones. Those of zstd work in the caller's goroutine and have none of their own.
var coders = [...]sync.Pool{
	gzipped: {New: func() any {
		z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		return z
	}},
	zstandard: {New: func() any {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return z
	}},
}

// negotiate chooses by Accept-Encoding (RFC 9110, 12.5.3). must tells that the client refuses an
// answer that is not compressed. The highest weight wins; at equal ones gzip before zstd before
// none, although zstd is smaller: Grafana hands on what its user's browser accepts, zstd too, and
// cannot read zstd itself. Elements that are not understood are passed over, and so is a refusal of
// everything: an answer that is readable is better than a 406.
func negotiate(fields []string) (c coding, must bool) {
	const none = -1
	named := [...]int{none, none, none}
	others := none
	for _, f := range fields {
		for len(f) > 0 {
			var element string
			element, f, _ = strings.Cut(f, ",")
			name, weight, ok := weighted(element)
			if !ok {
				continue
			}
			w := &others
			switch {
			case name == "*":
			case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
				w = &named[gzipped]
			case strings.EqualFold(name, "zstd"):
				w = &named[zstandard]
			case strings.EqualFold(name, "identity"):
				w = &named[uncoded]
			default:
				continue
			}
			if *w == none || weight < *w { // who says no once means no
				*w = weight
			}
		}
	}
	if named[gzipped] == none {
		named[gzipped] = others // not zstd: who writes * has often not heard of it
	}
	plain := named[uncoded]
	if plain == none && others == 0 {
		plain = 0
	}
	c = gzipped
	if named[zstandard] > named[gzipped] {
		c = zstandard
	}
	if named[c] <= 0 || plain > named[c] {
		return uncoded, false
	}
	return c, plain == 0
}

// weighted reads an element of Accept-Encoding; the weight is in thousandths.
func weighted(element string) (name string, weight int, ok bool) {
	name, parameter, more := strings.Cut(element, ";")
	name = strings.Trim(name, " \t")
	if !more {
		return name, 1000, name != ""
	}
	parameter = strings.Trim(parameter, " \t")
	if len(parameter) < len("q=0") || parameter[0]|0x20 != 'q' || parameter[1] != '=' {
		return "", 0, false
	}
	whole, fraction, _ := strings.Cut(parameter[2:], ".")
	if whole != "0" && whole != "1" || len(fraction) > 3 {
		return "", 0, false
	}
	weight = int(whole[0]-'0') * 1000
	for i, unit := 0, 100; i < len(fraction); i, unit = i+1, unit/10 {
		if fraction[i] < '0' || fraction[i] > '9' {
			return "", 0, false
		}
		weight += int(fraction[i]-'0') * unit
	}
	return name, weight, name != "" && weight <= 1000
}

// compressible tells whether an answer of this type may be compressed. Remote read is not: its
// frames are read one by one, and its messages are snappy.
func compressible(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch strings.TrimSpace(kind) {
	case "application/json", "application/x-ndjson", "application/yaml", "text/plain",
		"application/openmetrics-text", "application/vnd.google.protobuf":
		return true
	}
	return false
}

// codedWriter compresses a success where the client asked for it. It belongs to the goroutine that
// serves the request.
type codedWriter struct {
	http.ResponseWriter
	pool   func() *admit.Pool
	conn   *cappedConn
	peer   string // whose memory the coder takes
	coding coding
	must   bool
	begun  bool
	coder  coder // nil while, and where, nothing is compressed
	memory *admit.Budget
}

// coded is the writer of an answer to r. release must be called; end, where the request ended well.
func (s *Server) coded(w http.ResponseWriter, r *http.Request) *codedWriter {
	w.Header().Add("Vary", "Accept-Encoding")
	c := &codedWriter{ResponseWriter: w, pool: s.poolNow, conn: conn(r), peer: identity.HolderOf(r)}
	c.coding, c.must = negotiate(r.Header.Values("Accept-Encoding"))
	return c
}

// WriteHeader implements http.ResponseWriter. Only a 200 is compressed: errors are small, and are
// to be readable for everybody.
func (c *codedWriter) WriteHeader(status int) {
	if !c.begun {
		c.begun = true
		if status == http.StatusOK {
			c.begin()
		}
	}
	c.ResponseWriter.WriteHeader(status)
}

// begin decides, now that the header is complete.
func (c *codedWriter) begin() {
	h := c.Header()
	if c.coding == uncoded || !compressible(h) {
		return
	}
	if size, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && size < smallAnswer && !c.must {
		return
	}
	memory := admit.NewBudget(c.pool(), admit.Limits{}).By(c.peer)
	if memory.Hold(coderBytes) != nil {
		memory.Close()
		return
	}
	c.memory = memory
	c.coder = coders[c.coding].Get().(coder)
	c.coder.Reset(c.ResponseWriter)
	h.Del("Content-Length")
	h.Set("Content-Encoding", c.coding.String())
}

// Write implements io.Writer. Bytes stay in the coder until a block of them is full.
func (c *codedWriter) Write(p []byte) (int, error) {
	first := !c.begun
	if first {
		c.begun = true
		c.begin()
	}
	if c.coder != nil {
		return c.coder.Write(p)
	}
	return c.conn.together(c.ResponseWriter, p, first && c.Header().Get("Content-Length") != "")
}

// FlushError sends what the coder holds; http.ResponseController.Flush calls it.
func (c *codedWriter) FlushError() error {
	if c.coder != nil {
		if err := c.coder.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController find the connection.
func (c *codedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// end writes what makes the compressed answer whole.
func (c *codedWriter) end() error {
	if c.coder == nil {
		return nil
	}
	return c.coder.Close()
}

// release gives the coder back, whatever became of the answer; nothing is written.
func (c *codedWriter) release() {
	if c.coder != nil {
		c.coder.Reset(nil)
		coders[c.coding].Put(c.coder)
		c.coder = nil
	}
	c.memory.Close()
}
