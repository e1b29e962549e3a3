package discovery

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// What is read of one answer at most, inflated. Of an API server it is more: it is asked for pages
// of 500 objects at first, but for all of them at once where a watch cannot be taken up again.
const (
	maxList   = 16 << 20
	maxAnswer = 256 << 20
)

// limited cuts answers that are longer than most bytes, with an error: who asks holds all of one.
// It stands where they have been inflated.
type limited struct {
	http.RoundTripper
	most    int64
	watches bool   // what is watched has no end, and is read piece by piece
	what    string // is too long
	advice  string
}

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if w := r.URL.Query().Get("watch"); l.watches && resp.StatusCode == http.StatusOK && (w == "true" || w == "1") {
		return resp, nil
	}
	resp.Body = &cut{
		ReadCloser: resp.Body, left: l.most, over: resp.ContentLength > l.most,
		err: fmt.Errorf("%s at %s is longer than %d MiB; %s", l.what, plain(r.URL), l.most>>20, l.advice),
	}
	return resp, nil
}

// WrappedRoundTripper tells client-go whose connections there are.
func (l *limited) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// cut is a body that ends with an error after so many bytes.
type cut struct {
	io.ReadCloser
	left int64
	over bool
	err  error
}

// Read implements io.Reader.
func (c *cut) Read(p []byte) (int, error) {
	if c.over {
		return 0, c.err
	}
	if int64(len(p)) > c.left {
		p = p[:c.left+1] // one more tells whether it is over
	}
	n, err := c.ReadCloser.Read(p)
	if c.over = int64(n) > c.left; c.over {
		return int(c.left), c.err
	}
	c.left -= int64(n)
	return n, err
}

// plain is an address without what may be a credential.
func plain(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// cause is an error without the address of the call.
func cause(err error) error {
	var call *url.Error
	if errors.As(err, &call) {
		return call.Err
	}
	return err
}
