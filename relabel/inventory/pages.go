package inventory

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

var _ Sampled = (*pages)(nil)

// extensions are those of pages, with the content type that each stands for; .gz may follow.
var extensions = map[string]string{".prom": textType, ".txt": textType, ".om": openMetricsType, ".pb": protobufType}

// pages reads a folder.
type pages struct {
	dir   string
	files []pageFile
}

type pageFile struct {
	path, contentType string
	zipped            bool
	target            labels.Labels
}

// Pages reads saved pages: dir/JOB/INSTANCE.prom in the text format (.txt too), .om in OpenMetrics,
// .pb in delimited protobuf, each also with .gz behind it. JOB and INSTANCE are decoded as in URLs
// (%2F is a slash). A job with one page may be dir/JOB.prom instead; its instance is called like
// the job then. Files whose name begins with a dot, and *.md, are left alone; anything else is an
// error, since what it holds would be missing.
//
// Samples are those on the pages, all at the time at which the youngest file was written: pages
// have no time of their own, and the timestamps that some of their lines have say when a thing was
// measured.
func Pages(dir string) (Source, error) {
	jobs, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of pages: %w", err)
	}
	p := &pages{dir: dir}
	var errs []error
	add := func(path, job, name string) {
		file, err := newPageFile(path, job, name)
		if err != nil {
			errs = append(errs, err)
			return
		}
		p.files = append(p.files, file)
	}
	for _, job := range jobs {
		path := filepath.Join(dir, job.Name())
		if ignored(job.Name()) {
			continue
		}
		if !isDir(path) {
			add(path, "", job.Name())
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the folder of job %s: %w", job.Name(), err))
			continue
		}
		for _, e := range entries {
			if ignored(e.Name()) {
				continue
			}
			add(filepath.Join(path, e.Name()), job.Name(), e.Name())
		}
	}
	slices.SortFunc(p.files, func(a, b pageFile) int {
		return cmp.Or(labels.Compare(a.target, b.target), cmp.Compare(a.path, b.path))
	})
	for i := 1; i < len(p.files); i++ {
		if labels.Equal(p.files[i-1].target, p.files[i].target) {
			errs = append(errs, fmt.Errorf("%s and %s are pages of the same target; keep one", p.files[i-1].path, p.files[i].path))
		}
	}
	if len(p.files) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s holds no pages; they are %s, also .txt, .om, .pb, each with or without .gz", dir, filepath.Join(dir, "JOB", "INSTANCE.prom")))
	}
	if len(errs) > 0 {
		return nil, few(errs)
	}
	return p, nil
}

func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.EqualFold(filepath.Ext(name), ".md")
}

// isDir follows links: folders of pages are often mounted so.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// newPageFile makes out what a page is from its name. Without a job, the name is that of the job.
func newPageFile(path, job, name string) (pageFile, error) {
	f := pageFile{path: path}
	if isDir(path) {
		return f, fmt.Errorf("%s is a folder; pages stand directly in the folder of their job", path)
	}
	name, f.zipped = strings.CutSuffix(name, ".gz")
	ext := filepath.Ext(name)
	if f.contentType = extensions[ext]; f.contentType == "" {
		return f, fmt.Errorf("%s: pages end in .prom, .txt, .om or .pb, with or without .gz", path)
	}
	name = strings.TrimSuffix(name, ext)
	values := [2]string{cmp.Or(job, name), name}
	for i := range values {
		v, err := url.PathUnescape(values[i])
		if err != nil {
			return f, fmt.Errorf("%s: %w; job and instance are decoded as in URLs, where a percent sign is %%25", path, err)
		}
		if v == "" {
			return f, fmt.Errorf("%s: the name of the page is empty", path)
		}
		values[i] = v
	}
	f.target = labels.FromStrings(model.JobLabel, values[0], model.InstanceLabel, values[1])
	if !f.target.IsValid(model.UTF8Validation) {
		return f, fmt.Errorf("%s: job and instance must be UTF-8", path)
	}
	return f, nil
}

// few joins errors, at most ten of them.
func few(errs []error) error {
	const most = 10
	if len(errs) > most {
		errs = append(slices.Clip(errs[:most]), fmt.Errorf("and %d more like these", len(errs)-most))
	}
	return errors.Join(errs...)
}

// String is the folder.
func (p *pages) String() string { return p.dir }

// Scan reads one file after the other, by job and instance, a little ahead of f.
func (p *pages) Scan(ctx context.Context, f func(*Series) error) error { return ahead(ctx, p.scan, f) }

func (p *pages) scan(ctx context.Context, f func(*Series) error) error {
	for i := range p.files {
		page, err := p.files[i].read()
		if err != nil {
			return err
		}
		if err := page.each(ctx, func(s *sample) error { return f(&s.Series) }); err != nil {
			return err
		}
	}
	return nil
}

// Samples hands on the samples of the pages.
func (p *pages) Samples(ctx context.Context, _ time.Duration, keep func(labels.Labels) bool, f withSamples) error {
	var newest int64
	for i := range p.files {
		info, err := os.Stat(p.files[i].path)
		if err != nil {
			return fmt.Errorf("when was the page written: %w", err)
		}
		newest = max(newest, info.ModTime().UnixMilli())
	}
	for i := range p.files {
		page, err := p.files[i].read()
		if err != nil {
			return err
		}
		if err := page.samples(ctx, newest, keep, f); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) samples(ctx context.Context, t int64, keep func(labels.Labels) bool, f withSamples) error {
	return p.each(ctx, func(s *sample) error {
		if !keep(s.Labels) {
			return nil
		}
		floats, histograms := s.points(t)
		return f(&s.Series, floats, histograms)
	})
}

func (f *pageFile) read() (_ *page, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("open a page: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	body, err := readPage(file, f.zipped)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	if len(body) == 0 {
		return nil, fmt.Errorf("%s is empty: was the target down when it was fetched? Fetch it again, or remove the file", f.path)
	}
	return &page{where: f.path, body: body, contentType: f.contentType, target: f.target}, nil
}

// readPage reads all of a page, at most MaxPageBytes.
func readPage(r io.Reader, zipped bool) ([]byte, error) {
	if zipped {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("unzip: %w", err)
		}
		defer z.Close() // the reader says at its end what Close would
		r = z
	}
	body, err := io.ReadAll(io.LimitReader(r, MaxPageBytes+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the page was cut short: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read the page: %w", err)
	case len(body) > MaxPageBytes:
		return nil, fmt.Errorf("the page is larger than %d bytes", MaxPageBytes)
	}
	return body, nil
}
