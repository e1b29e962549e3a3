package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

// State is what is known about whether a server keeps a promise that the configuration gives for
// its group: hashmod, names or shard_by. A promise prunes requests, or has them run on the shards,
// only while every server that may be asked keeps it.
type State string

// The states. Only what is Trusted prunes requests.
const (
	// Unchecked is a server whose values could not be read yet, or not all of them.
	Unchecked State = "unchecked"
	// Trusted is a server all of whose values kept the promise when they were read last, which
	// Fact's After bounds.
	Trusted State = "trusted"
	// Broken is a server that holds a value which does not.
	Broken State = "broken"
)

// Fact is the outcome of the last check of a promise on a server. The zero Fact is that of a server
// that was not checked.
type Fact struct {
	// Promise tells what was checked, which a reload may change: a text or its Digest.
	Promise string
	State   State
	// Value is one that broke the promise, fit for a message.
	Value string
	// Why says why it is not trusted: a sentence about the server.
	Why string
	// At is when the values were read that the state was found by; zero where none were.
	At time.Time
}

// Digest stands for the text of a promise that may be long: one is kept of each server, and each
// may be about all others.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// After is what is left of it at now, once what is older than bound is believed no more: a server
// that keeps its values to itself may have got others meanwhile. What was seen to be broken stays.
func (f Fact) After(bound time.Duration, now time.Time, label string) Fact {
	if f.State == Trusted && now.Sub(f.At) > bound {
		f.State, f.Why = Unchecked, fmt.Sprintf("its values of %s could not be read since %s", label, f.At.UTC().Format(time.RFC3339))
	}
	return f
}

// Of is what is known of the promise about a label, and why where it is not trusted.
func (f Fact) Of(promise, label string) (state State, why string) {
	if f.State == "" || f.Promise != promise {
		return Unchecked, "its values of " + label + " have not been read yet"
	}
	return f.State, f.Why
}

// Values are all values that a server has of a label in its shard's time.
type Values struct {
	List []string
	// Unread says why these are not all of them: a clause about the server. Empty where they are.
	Unread string
	// Away tells that the server could not be asked, so that what was known of it stands.
	Away bool
}

// Check holds the values of a label, as they were read at now, against a promise, by wrong, which
// says why a value breaks it and is empty where it does not. last is what was known before.
func Check(last Fact, promise, label string, v Values, now time.Time, wrong func(value string) string) Fact {
	f := Fact{Promise: promise, State: Trusted, At: now}
	switch {
	case v.Away && last.Promise == promise:
		return last
	case v.Away:
		return Fact{Promise: promise}
	case v.Unread != "":
		f.State, f.Why = Unchecked, fmt.Sprintf("its values of %s cannot be read whole: %s", label, v.Unread)
		return f
	}
	for _, value := range v.List {
		if why := wrong(value); why != "" {
			f.State, f.Value, f.Why = Broken, clip.Said(value), why
			return f
		}
	}
	return f
}
