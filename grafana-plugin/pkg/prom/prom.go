package prom

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// MaxAnswerBytes is the most that is read of one answer, as much as the proxy sends by default.
	MaxAnswerBytes = 64 << 20
	// smallBytes is as much of an answer as is read whatever else is.
	smallBytes = 4 << 20
	// budgetBytes is the most that a client reads at a time of answers that are larger.
	budgetBytes = 4 * MaxAnswerBytes
)

// Point is one sample: milliseconds since 1970 and a value.
type Point struct {
	T int64
	V float64
}

// Series is one series of an answer; a vector's has one point. Native histograms are left out and
// counted in Answer.Histograms.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Value is the series' last value.
func (s Series) Value() float64 { return s.Points[len(s.Points)-1].V }

// Answer is what a query gave. Series are in the order in which they came and have at least one
// point each. A scalar is one series without labels.
type Answer struct {
	Series          []Series
	Warnings, Infos []string
	Histograms      int
	// Left is how many series were left out behind the first ones that WithMaxSeries asks for.
	Left int
}

// Asker is what can be asked. *Client is one; tests have others.
type Asker interface {
	// Instant evaluates query at the moment at.
	Instant(ctx context.Context, query string, at time.Time) (Answer, error)
	// Range evaluates query at from, from+step, …, until.
	Range(ctx context.Context, query string, from, until time.Time, step time.Duration) (Answer, error)
}

// Refusal is an error that the proxy or a Prometheus answered with.
type Refusal struct {
	Status int // of HTTP
	Type   string
	// Message is the error's sentence. Bound, Value, Seen and Advice are empty where it was no
	// bound that refused.
	Message, Bound, Value, Seen, Advice string
	// RetryAfter is 0 where the answer had none.
	RetryAfter time.Duration
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("the proxy answered %d %s: %s", r.Status, http.StatusText(r.Status), r.Message)
	if r.Bound != "" {
		s += fmt.Sprintf(" (bound %s, value %s, seen %s)", r.Bound, r.Value, r.Seen)
	}
	if r.Advice != "" {
		s += ". " + r.Advice
	}
	return s
}
