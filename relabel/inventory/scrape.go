package inventory

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"
)

var _ Sampled = (*scraped)(nil)

const (
	// scrapesAtOnce bounds the targets that are asked at once, and with that the pages that are
	// held.
	scrapesAtOnce = 4
	// scrapeTimeout is for one target where the client has no bound of its own.
	scrapeTimeout = time.Minute
)

// Target is a page of metrics to fetch.
type Target struct {
	// URL is the page's; a user and a password in it are sent as basic authentication.
	URL string
	// Job and Instance are the values of these labels; without Instance it is the host and port of
	// URL.
	Job, Instance string
	// Labels are further labels of the target, as its relabelling would set them.
	Labels map[string]string
	// HonorLabels is honor_labels of the job: labels of the page win over those of the target.
	HonorLabels bool
}

// scraped fetches pages once and then reads its copy.
type scraped struct {
	client  *http.Client
	targets []Target
	labels  []labels.Labels

	mu    sync.Mutex
	spool *os.File // nil: not fetched yet
	pages []spooled
	at    int64
}

// spooled is where a page lies in the spool file.
type spooled struct {
	offset, length int64
	contentType    string
}

// Scrape fetches the pages of targets at the first reading, each once: a page that changed between
// two readings would make a proof about something else than what the rules were made of. The copies
// are held zipped in a temporary file that has no name and goes with the source. One target that
// does not answer is an error: its series would be missing.
//
// What is asked for is what a server with scrape_native_histograms asks for: protobuf, then
// OpenMetrics, then text. client may be nil.
func Scrape(client *http.Client, targets []Target) (Source, error) {
	if client == nil {
		client = &http.Client{Timeout: scrapeTimeout}
	}
	if len(targets) == 0 {
		return nil, errors.New("no targets to scrape")
	}
	s := &scraped{client: client, targets: slices.Clone(targets)}
	var errs []error
	for i := range s.targets {
		if err := s.targets[i].complete(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, few(errs)
	}
	slices.SortFunc(s.targets, func(a, b Target) int { return labels.Compare(a.labels(), b.labels()) })
	for i := range s.targets {
		s.labels = append(s.labels, s.targets[i].labels())
		if i > 0 && labels.Equal(s.labels[i], s.labels[i-1]) {
			errs = append(errs, fmt.Errorf("two targets have the labels %s: %s and %s", s.labels[i], s.targets[i-1].redacted(),
				s.targets[i].redacted()))
		}
	}
	if len(errs) > 0 {
		return nil, few(errs)
	}
	return s, nil
}

func (t *Target) complete() error {
	u, err := url.Parse(t.URL)
	if err != nil {
		return fmt.Errorf("target of job %s: the URL does not parse", t.Job) // its text may hold a password
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("target %s: the URL must be http://HOST:PORT/metrics or https://…", u.Redacted())
	}
	t.Instance = cmp.Or(t.Instance, u.Host)
	if t.Job == "" {
		return fmt.Errorf("target %s has no job; rules are made for jobs", u.Redacted())
	}
	if !t.labels().IsValid(model.UTF8Validation) {
		return fmt.Errorf("target %s: its labels are not valid: %s", u.Redacted(), t.labels())
	}
	return nil
}

func (t *Target) redacted() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "a URL that does not parse"
	}
	return u.Redacted()
}

func (t *Target) labels() labels.Labels {
	b := labels.NewBuilder(labels.FromMap(t.Labels))
	b.Set(model.JobLabel, t.Job)
	b.Set(model.InstanceLabel, t.Instance)
	return b.Labels()
}

// String names the first targets.
func (s *scraped) String() string {
	const most = 3
	var names []string
	for i := range s.targets {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(s.targets)-most))
			break
		}
		names = append(names, s.targets[i].Job+"="+s.targets[i].redacted())
	}
	return strings.Join(names, ", ")
}

// Scan reads one page after the other, by the labels of the targets, a little ahead of f.
func (s *scraped) Scan(ctx context.Context, f func(*Series) error) error {
	return ahead(ctx, s.scan, f)
}

func (s *scraped) scan(ctx context.Context, f func(*Series) error) error {
	return s.each(ctx, func(p *page) error {
		return p.each(ctx, func(one *sample) error { return f(&one.Series) })
	})
}

// Samples hands on the samples of the pages, at the time at which fetching them was done.
func (s *scraped) Samples(ctx context.Context, _ time.Duration, keep func(labels.Labels) bool, f withSamples) error {
	return s.each(ctx, func(p *page) error { return p.samples(ctx, s.at, keep, f) })
}

func (s *scraped) each(ctx context.Context, f func(*page) error) error {
	s.mu.Lock()
	err := s.fetchAll(ctx)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for i := range s.targets {
		at := s.pages[i]
		body, err := readPage(io.NewSectionReader(s.spool, at.offset, at.length), true)
		if err != nil {
			return fmt.Errorf("read the copy of %s: %w", s.targets[i].redacted(), err)
		}
		if err := f(&page{
			where: s.targets[i].redacted(), body: body, contentType: at.contentType, target: s.labels[i],
			honor: s.targets[i].HonorLabels,
		}); err != nil {
			return err
		}
	}
	return nil
}

// fetchAll fills the spool file unless that is done.
func (s *scraped) fetchAll(ctx context.Context) (err error) {
	if s.spool != nil {
		return nil
	}
	spool, err := os.CreateTemp("", "spillway-pages-")
	if err != nil {
		return fmt.Errorf("make a file for the pages: %w", err)
	}
	// Without its name the file goes with the last who has it open, at the latest with this
	// process.
	if err := os.Remove(spool.Name()); err != nil {
		return errors.Join(fmt.Errorf("take the name of the file for pages away: %w", err), spool.Close())
	}
	pages := make([]spooled, len(s.targets))
	errs := make([]error, len(s.targets))
	var mu sync.Mutex
	var end int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scrapesAtOnce)
	for i := range s.targets {
		group.Go(func() error {
			zipped, contentType, err := s.targets[i].fetch(ctx, s.client)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				errs[i] = fmt.Errorf("scrape %s: %w", s.targets[i].redacted(), err)
				return nil // ask the others too: all that do not answer are named at once
			}
			mu.Lock()
			defer mu.Unlock()
			if _, err := spool.WriteAt(zipped, end); err != nil {
				return fmt.Errorf("keep the page of %s: %w", s.targets[i].redacted(), err)
			}
			pages[i] = spooled{offset: end, length: int64(len(zipped)), contentType: contentType}
			end += int64(len(zipped))
			return nil
		})
	}
	err = group.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if err == nil && len(errs) > 0 {
		err = fmt.Errorf("%w\nall targets must answer: what is missing here could be dropped unseen", few(errs))
	}
	if err != nil {
		return errors.Join(err, spool.Close())
	}
	s.spool, s.pages, s.at = spool, pages, time.Now().UnixMilli()
	return nil
}

var acceptHeader = func() string {
	var accept []string
	weight := len(config.DefaultProtoFirstScrapeProtocols) + 2
	for _, p := range config.DefaultProtoFirstScrapeProtocols {
		v := config.ScrapeProtocolsHeaders[p]
		if p == config.PrometheusText1_0_0 || p == config.OpenMetricsText1_0_0 {
			v += ";" + model.EscapingKey + "=" + model.AllowUTF8
		}
		accept = append(accept, fmt.Sprintf("%s;q=0.%d", v, weight))
		weight--
	}
	return strings.Join(append(accept, fmt.Sprintf("*/*;q=0.%d", weight)), ",")
}()

// fetch returns the page, zipped again: it may be that it came unzipped.
func (t *Target) fetch(ctx context.Context, client *http.Client) (zipped []byte, contentType string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scrapeTimeout, fmt.Errorf("no answer within %s", scrapeTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, http.NoBody)
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Accept", acceptHeader)
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(scrapeTimeout.Seconds(), 'f', -1, 64))
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the URL is named by who called, without its password
		}
		return nil, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("it answers %s", resp.Status)
	}
	body, err := readPage(resp.Body, resp.Header.Get("Content-Encoding") == "gzip")
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, "", err
	}
	if _, err := z.Write(body); err != nil {
		return nil, "", err
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	return out.Bytes(), resp.Header.Get("Content-Type"), nil
}
