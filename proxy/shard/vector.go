package shard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxNesting is how deep an answer's values may be nested where they are skipped.
const maxNesting = 100

// pair is a label whose bytes are good until the callback that was given it returns.
type pair struct{ name, value []byte }

// decodeTargets reads a vector from the API and calls f with the labels of each of its elements
// that is an up; f's error ends it. All targets of all servers are read every half minute, so it is
// written by hand: a tenth of what encoding/json takes, and nothing allocated for an element. It
// reads what lies on the way to the labels, and is content with anything elsewhere that ends where
// it should. It holds one element.
func decodeTargets(r io.Reader, f func(set []pair) error) error {
	s := &scanner{r: bufio.NewReaderSize(r, 64<<10)}
	vector, listed := false, false
	err := s.object(func(name []byte) error {
		if string(name) != "data" {
			return s.skip()
		}
		return s.object(func(name []byte) error {
			switch string(name) {
			case "resultType":
				kind, err := s.text()
				vector = string(kind) == "vector"
				return err
			case "result":
				listed = true
				return s.array(func() error { return s.element(f) })
			default:
				return s.skip()
			}
		})
	})
	if err != nil {
		return err
	}
	if !vector {
		return errors.New("it is no vector")
	}
	if !listed {
		return errors.New("it has no result")
	}
	return nil
}

// scanner reads JSON. Texts stay in arena until it is cut.
type scanner struct {
	r     *bufio.Reader
	arena []byte
	set   []pair
}

// element reads one element of the vector.
func (s *scanner) element(f func(set []pair) error) error {
	s.set = s.set[:0]
	isUp := false
	err := s.object(func(name []byte) error {
		if string(name) != "metric" {
			return s.skip()
		}
		return s.object(func(name []byte) error {
			value, err := s.text()
			isUp = isUp || string(name) == "__name__" && string(value) == "up"
			s.set = append(s.set, pair{name, value})
			return err
		})
	})
	if err == nil && isUp {
		err = f(s.set)
	}
	s.arena = s.arena[:0]
	return err
}

// next is the next byte that is no space.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

func (s *scanner) expect(want byte) error {
	c, err := s.next()
	if err == nil && c != want {
		err = fmt.Errorf("%q where %q is due", c, want)
	}
	return err
}

// list reads what stands between begin and end, separated by commas; f reads one of it.
func (s *scanner) list(begin, end byte, f func() error) error {
	if err := s.expect(begin); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := s.next()
		switch {
		case err != nil:
			return err
		case c == end:
			return nil
		case first:
			err = s.r.UnreadByte()
		case c != ',':
			err = fmt.Errorf("%q where a comma is due", c)
		}
		if err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// object calls f with the name of each of an object's members, whose value f reads.
func (s *scanner) object(f func(name []byte) error) error {
	return s.list('{', '}', func() error {
		name, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return f(name)
	})
}

// array calls f for each of an array's elements, which f reads.
func (s *scanner) array(f func() error) error { return s.list('[', ']', f) }

// text reads a string.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	from := len(s.arena)
	for {
		piece, err := s.r.ReadSlice('"')
		s.arena = append(s.arena, piece...)
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		got := s.arena[from : len(s.arena)-1]
		slashes := len(got) - len(bytes.TrimRight(got, `\`))
		if slashes%2 == 1 {
			continue // the quote belongs to the text
		}
		if !bytes.Contains(got, []byte{'\\'}) {
			return got, nil
		}
		var plain string // few labels have an escape in them
		if err := json.Unmarshal(append([]byte{'"'}, s.arena[from:]...), &plain); err != nil {
			return nil, err
		}
		s.arena = append(s.arena[:from], plain...)
		return s.arena[from:], nil
	}
}

// skip reads any value and forgets it.
func (s *scanner) skip() error {
	from := len(s.arena)
	defer func() { s.arena = s.arena[:from] }()
	for depth := 0; ; {
		c, err := s.next()
		if err != nil {
			return err
		}
		switch c {
		case '{', '[':
			if depth++; depth > maxNesting {
				return fmt.Errorf("values are nested more than %d deep", maxNesting)
			}
		case '}', ']':
			if depth == 0 {
				return fmt.Errorf("%q where a value is due", c)
			}
			depth--
		case '"':
			_ = s.r.UnreadByte() // it was just read
			if _, err := s.text(); err != nil {
				return err
			}
			s.arena = s.arena[:from]
		case ',', ':':
			if depth == 0 {
				return fmt.Errorf("%q where a value is due", c)
			}
			continue
		default: // a number, true, false or null: up to what cannot belong to it
			for {
				c, err := s.r.ReadByte()
				if err == io.EOF {
					return io.ErrUnexpectedEOF
				}
				if err != nil {
					return err
				}
				if bytes.IndexByte([]byte(" \n\t\r,:]}{[\""), c) >= 0 {
					_ = s.r.UnreadByte() // it was just read
					break
				}
			}
		}
		if depth == 0 {
			return nil
		}
	}
}
