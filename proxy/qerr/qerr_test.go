package qerr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestEveryKindHasAStatus(t *testing.T) {
	labels := map[string]bool{}
	for _, k := range Kinds() {
		if k.Status() < 400 || k.ErrorType() == "" || k.String() == "" {
			t.Errorf("kind %d: status %d, errorType %q, label %q", k, k.Status(), k.ErrorType(), k.String())
		}
		if k.Status() == 504 {
			t.Errorf("kind %s uses 504, which the contract excludes", k)
		}
		if labels[k.String()] {
			t.Errorf("label %q stands twice", k)
		}
		labels[k.String()] = true
	}
}

func TestWrite(t *testing.T) {
	for _, tc := range []struct {
		name       string
		err        *Error
		code       int
		errorType  string
		retryAfter string
		allow      string
	}{
		{"bound", Refuse("max_series", "5", "6", "name a metric", "too many series"), 422, "execution", "", ""},
		{
			"overload", Overload("memory.budget", "1MiB", 1500*time.Millisecond, "try again", "no memory left"), 429, "too_many_requests",
			"2",
			"",
		},
		{"overload without wait", New(Overloaded, "full"), 429, "too_many_requests", "1", ""},
		{"method", &Error{Kind: MethodNotAllowed, Message: "no", Allow: []string{"GET", "POST"}}, 405, "bad_data", "", "GET, POST"},
		{"shard", Wrap(ShardFailed, errors.New("secret"), "shard a failed"), 502, "internal", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			tc.err.WriteTo(rec)
			var got struct {
				Status, ErrorType, Error string
				Spillway                 map[string]string
			}
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if rec.Code != tc.code || got.ErrorType != tc.errorType || got.Status != "error" {
				t.Errorf("got %d %+v", rec.Code, got)
			}
			if !strings.Contains(got.Error, tc.err.Message) || !strings.Contains(got.Error, tc.err.Advice) {
				t.Errorf("error %q lacks the message or the advice", got.Error)
			}
			for _, key := range []string{"bound", "value", "seen", "advice"} {
				if _, ok := got.Spillway[key]; !ok {
					t.Errorf("spillway.%s is missing", key)
				}
			}
			if strings.Contains(rec.Body.String(), "secret") {
				t.Error("the private cause left the process")
			}
			if got := rec.Header().Get("Retry-After"); got != tc.retryAfter {
				t.Errorf("Retry-After %q", got)
			}
			if got := rec.Header().Get("Allow"); got != tc.allow {
				t.Errorf("Allow %q", got)
			}
		})
	}
}

func TestCanceledWritesNothing(t *testing.T) {
	rec := httptest.NewRecorder()
	From(context.Canceled).WriteTo(rec)
	if rec.Body.Len() != 0 {
		t.Errorf("wrote %q", rec.Body)
	}
}

func TestFrom(t *testing.T) {
	inner := New(TooExpensive, "x")
	for _, tc := range []struct {
		err  error
		want Kind
	}{
		{fmt.Errorf("shard a: %w", inner), TooExpensive},
		{ErrClientLeft, Canceled},
		{context.Canceled, Canceled},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), Timeout},
		{errors.New("boom"), Internal},
	} {
		if got := From(tc.err); got.Kind != tc.want || !errors.Is(got, tc.err) && !errors.Is(tc.err, got) {
			t.Errorf("From(%v) = %v", tc.err, got)
		}
	}
	if From(nil) != nil {
		t.Error("From(nil) is an error")
	}
}

func TestFromContextAsksTheContextFirst(t *testing.T) {
	cause := New(Timeout, "the deadline of 5s passed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if got := FromContext(ctx, errors.New("use of closed connection")); got != cause {
		t.Errorf("got %v", got)
	}
}

// What Prometheus itself says of a request stays as it is; the object beside it always says
// something.
func TestPrometheusSentencesStay(t *testing.T) {
	for advice, e := range map[string]*Error{
		badDataAdvice:  New(BadData, "parse %s", "error"),
		verbatimAdvice: Prometheus("parse %s", "error"),
	} {
		got := string(e.JSON())
		if !strings.HasPrefix(got, `{"status":"error","errorType":"bad_data","error":"parse error","spillway":{`) || !strings.Contains(got, `"advice":"`+advice+`"`) {
			t.Error(got)
		}
	}
	if strings.Contains(badDataAdvice, "Prometheus") {
		t.Errorf("%q is said of what Prometheus would take, too", badDataAdvice)
	}
	if got := string((&Error{Kind: BadData, Message: "m", Advice: "a"}).JSON()); !strings.Contains(got, `"error":"m; a","spillway":{"bound":"","value":"","seen":"","advice":"a"}`) {
		t.Error(got)
	}
}

// TestRewriteIsWritten: a rewrite stands in the object spillway, after the four fields that are
// always there; without one nothing does.
func TestRewriteIsWritten(t *testing.T) {
	e := Refuse("max_points", "11000", "20000", "try step=2s, or use step=2s or more", "too many points")
	if got := string(e.JSON()); strings.Contains(got, "rewrite") {
		t.Errorf("%s", got)
	}
	e.Rewrite = &Rewrite{Kind: "step", Path: "/api/v1/query_range", Parameters: map[string][]string{"step": {"2"}}, Tried: true, Series: 3}
	const want = `{"status":"error","errorType":"execution","error":"too many points; try step=2s, or use step=2s or more","spillway":{"bound":"max_points","value":"11000","seen":"20000","advice":"try step=2s, or use step=2s or more","rewrite":{"kind":"step","path":"/api/v1/query_range","parameters":{"step":["2"]},"tried":true,"series":3,"samples":0}}}` + "\n"
	if got := string(e.JSON()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
