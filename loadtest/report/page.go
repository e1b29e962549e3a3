package report

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
)

// pageTemplate is the whole page: it names no other file, runs no script, and reads well on paper.
var pageTemplate = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 856px; padding: 32px 24px 48px; background: #fff; color: #1f2933; font: 16px/1.5 "Liberation Sans", Arial, Helvetica, sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 8px; }
h2 { font-size: 17px; margin: 32px 0 8px; }
p { margin: 8px 0; }
ul.found { margin: 12px 0 0; padding-left: 20px; }
figure { margin: 24px 0 0; overflow-x: auto; }
svg { display: block; max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 18px 6px 0; text-align: left; vertical-align: top; border-bottom: 1px solid #e3e7ec; white-space: nowrap; }
th { color: #5f6b7a; font-weight: 600; }
.n { text-align: right; }
td:last-child { white-space: normal; }
.notes { margin-top: 32px; color: #5f6b7a; font-size: 14px; }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
{{with .Lead}}<p>{{.}}</p>
{{end}}<ul class="found">
{{range .Runs}}<li><strong>{{.Name}}</strong>: {{.Summary}}</li>
{{end}}</ul>
<figure>
{{.Picture}}</figure>
{{range .Tables}}<h2>{{.Name}}</h2>
<div class="wide"><table>
<tr>{{range .Head}}<th{{if .Right}} class="n"{{end}}>{{.Text}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td{{if .Right}} class="n"{{end}}>{{.Text}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}{{with .Notes}}<div class="notes">
{{range .}}<p>{{.}}</p>
{{end}}</div>
{{end}}</body>
</html>
`))

type cell struct {
	Text  string
	Right bool
}

type pageTable struct {
	Name string
	Head []cell
	Rows [][]cell
}

func (t table) page(name string) pageTable {
	cells := func(row []string) []cell {
		out := make([]cell, len(row))
		for i, c := range row {
			out[i] = cell{c, t.right[i]}
		}
		return out
	}
	p := pageTable{Name: name, Head: cells(t.head)}
	for _, row := range t.rows {
		p.Rows = append(p.Rows, cells(row))
	}
	return p
}

// WriteHTML writes the report as one page with the picture in it.
func (r *Report) WriteHTML(w io.Writer) error {
	picture, err := r.svg(pictureWidth-2*margin, r.height()-titleHeight-margin, r.drawRuns)
	if err != nil {
		return err
	}
	// Inside a page the picture is an element, not a document.
	if i := bytes.Index(picture, []byte("<svg")); i > 0 {
		picture = picture[i:]
	}
	tables := []pageTable{r.memoryTable().page("Resident memory")}
	if t := r.requestTable(); len(t.rows) > 0 {
		tables = append(tables, t.page("Requests"))
	}
	for _, t := range r.Tables {
		tables = append(tables, table{t.Head, t.Right, t.Rows}.page(t.Name))
	}
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, map[string]any{
		"Title": r.Title, "Lead": r.Lead, "Runs": r.Runs, "Notes": r.Notes, "Tables": tables,
		"Picture": template.HTML(picture), // every text in it was escaped when it was drawn
	})
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// Save writes the report to a file in the form that its name says: .txt, .html, .svg or .png (at
// twice the size, for fine screens). The file is there whole or not at all.
func (r *Report) Save(path string) (err error) {
	write := map[string]func(io.Writer) error{
		".txt": r.WriteText, ".html": r.WriteHTML, ".svg": r.WriteSVG,
		".png": func(w io.Writer) error { return r.WritePNG(w, 2) },
	}[filepath.Ext(path)]
	if write == nil {
		return fmt.Errorf("save the report as %s: the name must end in .txt, .html, .svg or .png", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("save the report as %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
