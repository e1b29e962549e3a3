package merge

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/admit"
)

const (
	maxNotes     = 32
	maxNoteBytes = 1 << 10
)

// truncatedByLimit is the warning with which Prometheus says that limit= cut its answer.
const truncatedByLimit = "results truncated due to limit"

// Source is one shard's answer.
type Source struct {
	// Name is the shard's group and host:port, for errors.
	Name string
	// Shard tells which sources are replicas of one shard: those with the same Shard, where it is
	// not empty. It matters only where numbers are summed (counts of targets and of series), which
	// must not count replicas twice.
	Shard string
	// Body is the inflated answer. The caller closes it.
	Body io.Reader
	// Cancel, where set, is called when the answer is not wanted any more because another shard's
	// failed, possibly while Body is being read: it must be safe for that, and wake the reader. It
	// may cancel other sources too. Where it is nil, their reads are waited for.
	Cancel func()
	// Relabel is what is done to the label sets in it; nil is nothing.
	Relabel *Relabel
	// Stamped tells that the rules in it carry the external labels of the servers that evaluate
	// them, which Thanos adds and Prometheus does not.
	Stamped bool
	// Keep tells which rules and alerts the asker may see, by their labels; nil is all. For
	// metadata the labels are the metric's name alone.
	Keep func(labels.Labels) bool
	// Bare takes the texts out of metadata, and what not all sources agree on: a server does not
	// say whose metadata it is, and the asker may see a part. What a search finds is not described.
	Bare bool
	// Asked is what the answer to a query must fit; nil takes any result. Pass and Splice look at
	// it.
	Asked *Asked
	// Limit is how many strings or series the shard was asked for; what it sends beyond is cut
	// there. 0 is no limit of its own.
	Limit int
}

// Count is what one source answered with.
type Count struct {
	Series  int
	Samples int64
}

// Result tells what a merge has seen.
type Result struct {
	// Series is the number of series, strings or entries written.
	Series int
	// Truncated tells that a limit cut the answer, here or at a shard: the caller owes the client a
	// warning.
	Truncated bool
	// Warnings and Infos are those of the shards, each once, in order of the sources, at most 32 of
	// 1 KiB. A shard's own note that limit= cut its answer is not among them: it is Truncated.
	Warnings, Infos []string
	// Counts are, for answers to queries, what each source sent, in their order.
	Counts []Count
}

// Notes is a list of warnings or infos: each once, at most 32 of at most 1 KiB, valid UTF-8 without
// control characters.
type Notes struct {
	list    []string
	dropped bool
}

// Add appends what is new.
func (n *Notes) Add(notes ...string) {
	for _, s := range notes {
		s = sanitise(s)
		if s == "" || slices.Contains(n.list, s) {
			continue
		}
		if len(n.list) >= maxNotes {
			n.dropped = true
			return
		}
		n.list = append(n.list, s)
	}
}

// List returns the notes.
func (n *Notes) List() []string { return n.list }

func (n *Notes) append(dst []byte, key string) []byte {
	for i, s := range n.list {
		if i == 0 {
			dst = append(dst, `,"`+key+`":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = AppendText(dst, s)
	}
	if len(n.list) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// sanitise makes a text of a shard fit to be shown: valid UTF-8, no control characters, at most 1
// KiB, cut between runes.
func sanitise(s string) string {
	if len(s) > maxNoteBytes {
		s = clip.Text(s, maxNoteBytes-len("…"))
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	// Replacing invalid bytes may have made it longer.
	for len(s) > maxNoteBytes {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimSpace(s)
}

// answer is an envelope as read.
type answer struct {
	status             string
	errorType, message string
	warnings, infos    Notes
	truncated          bool
	hasData            bool // data is there and not null, which stands for nothing found
	named              bool // data is there
}

// readAnswer walks the envelope of a whole document; its keys may come in any order. data is called
// with the scanner at the data value, at most once, and must consume it. An error object is an
// *UpstreamError.
func readAnswer(s *Scanner, a *answer, data func() bool) bool {
	if !s.Object() {
		return false
	}
	if !readEnvelope(s, a, data) {
		return false
	}
	return finishAnswer(s, a)
}

// readEnvelope reads keys up to the end of the object whose brace is consumed.
func readEnvelope(s *Scanner, a *answer, data func() bool) bool {
	for first := true; ; first = false {
		atData, ok := envelopeKey(s, a, first)
		if !ok {
			return s.err == nil
		}
		if atData && !data() {
			return false
		}
	}
}

// toData reads keys up to a data value, which is next when found is true. It is false at an error.
func (a *answer) toData(s *Scanner) (found, ok bool) {
	for first := true; ; first = false {
		atData, ok := envelopeKey(s, a, first)
		if !ok {
			return false, s.err == nil
		}
		if atData {
			return true, true
		}
	}
}

// afterData reads what follows a data value up to the end of the document.
func (a *answer) afterData(s *Scanner) bool {
	for {
		atData, ok := envelopeKey(s, a, false)
		if !ok {
			return s.err == nil && finishAnswer(s, a)
		}
		if atData {
			return s.fail(WrongShape, "data stands twice")
		}
	}
}

// envelopeKey reads one key of an envelope with its value, but for a data value other than null, in
// front of which it stops. ok is false at the end of the object, or at an error.
func envelopeKey(s *Scanner, a *answer, first bool) (atData, ok bool) {
	key, ok := s.Key(first)
	if !ok {
		return false, false
	}
	switch string(key) {
	case "status":
		ok = readText(s, &a.status)
	case "data":
		if a.hasData {
			return false, s.fail(WrongShape, "data stands twice")
		}
		a.named = true
		if s.peek() == 'n' {
			return false, s.Null()
		}
		a.hasData = true
		return true, true
	case "errorType":
		ok = readText(s, &a.errorType)
	case "error":
		ok = readText(s, &a.message)
	case "warnings":
		ok = readNotes(s, &a.warnings, &a.truncated)
	case "infos":
		ok = readNotes(s, &a.infos, nil)
	case "isPartial": // a VictoriaMetrics cluster, of which a part did not answer
		if s.peek() == 't' {
			return false, s.fail(WrongShape, "it says itself that it is partial (isPartial)")
		}
		ok = s.skip(2)
	default:
		ok = s.skip(2)
	}
	return false, ok
}

func finishAnswer(s *Scanner, a *answer) bool {
	if !s.End() {
		return false
	}
	switch a.status {
	case "success":
		if a.errorType != "" || a.message != "" {
			return s.fail(WrongShape, "an error stands beside success")
		}
		return a.named || s.fail(WrongShape, "a success without data")
	case "error":
		s.err = &UpstreamError{Type: a.errorType, Message: a.message}
		return false
	default:
		return s.fail(WrongShape, "status is %q, neither success nor error", a.status)
	}
}

func readText(s *Scanner, dst *string) bool {
	if s.peek() == 'n' {
		return s.Null()
	}
	b, ok := s.String()
	if ok {
		*dst = sanitise(string(b[:min(len(b), 2*maxNoteBytes)]))
	}
	return ok
}

func readNotes(s *Scanner, n *Notes, truncated *bool) bool {
	if s.peek() == 'n' {
		return s.Null()
	}
	if !s.Array() {
		return false
	}
	for first := true; s.More(first); first = false {
		b, ok := s.String()
		if !ok {
			return false
		}
		if truncated != nil && string(b) == truncatedByLimit {
			*truncated = true
			continue
		}
		if !n.dropped {
			n.Add(string(b[:min(len(b), 2*maxNoteBytes)]))
		}
	}
	return s.err == nil
}

// take merges what one answer said beside its data.
func (r *Result) take(a *answer, warnings, infos *Notes) {
	r.Truncated = r.Truncated || a.truncated
	warnings.Add(a.warnings.list...)
	infos.Add(a.infos.list...)
	r.Warnings, r.Infos = warnings.list, infos.list
}

// DecodeError reads an error answer of a shard. The result is an *UpstreamError, or what is wrong
// with the body.
func DecodeError(ctx context.Context, src Source, budget *admit.Budget) error {
	s := NewScanner(src.Body, budget)
	defer s.Close()
	var a answer
	if readAnswer(s, &a, s.Skip) {
		s.fail(WrongShape, "a success where an error was expected")
	}
	var up *UpstreamError
	if errors.As(s.err, &up) {
		return up
	}
	return shardErr(ctx, src.Name, s.err)
}
