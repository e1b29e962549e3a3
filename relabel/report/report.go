package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/spillwayproject/spillway/relabel"
)

//go:embed page.html
var page string

//go:embed page.css
var style string

// pageTemplate is the whole page. The style stands in it before it is parsed, so that the template
// knows what it is.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) },
}).Parse(page))

// HTML writes the plan as one page that needs no other file.
func HTML(p *relabel.Plan, w io.Writer) error {
	v, err := makeView(p)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
