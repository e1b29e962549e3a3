package endpoint

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The version of OpenAPI that is written, and the other one that may be asked for: what is written
// means the same in both.
const (
	openAPIVersion      = "3.1.0"
	openAPIVersionNewer = "3.2.0"
)

// OpenAPI is the table as an OpenAPI document in YAML: each row with its methods, its parameters
// and their bounds, and what it answers with. newer has it say 3.2.0 instead of 3.1.0. version is
// Spillway's, base the address or the path before all paths, such as /. It has some 100 KiB.
func OpenAPI(version, base string, newer bool) []byte {
	d := &document{}
	d.line(0, "openapi: %s", map[bool]string{false: openAPIVersion, true: openAPIVersionNewer}[newer])
	d.line(0, "info:")
	d.line(1, "title: Spillway")
	d.line(1, "description: %s", yamlText("The query side of the Prometheus HTTP API over many servers, bounded in time, series, samples and bytes. "+
		"A request over a bound is refused with a sentence that says which, what was seen and what to do (error, and the object spillway)."))
	d.line(1, "version: %s", yamlText(version))
	d.line(0, "servers:")
	d.line(1, "- url: %s", yamlText(base))
	d.line(0, "paths:")
	for i := range Table {
		d.row(&Table[i])
	}
	d.b.WriteString(openAPIComponents)
	return []byte(d.b.String())
}

// OpenAPINewer tells whether a request for the document asks for the newer version.
func (r *Request) OpenAPINewer() bool {
	v := r.Filters["openapi_version"]
	return len(v) > 0 && strings.HasPrefix(openAPIVersionNewer, v[0])
}

// document is a YAML text.
type document struct{ b strings.Builder }

func (d *document) line(depth int, format string, args ...any) {
	d.b.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&d.b, format, args...)
	d.b.WriteByte('\n')
}

// yamlText quotes a text; what strconv escapes YAML reads in the same way.
func yamlText(s string) string { return strconv.Quote(s) }

func (d *document) row(e *Endpoint) {
	d.line(1, "%s:", yamlText(e.Path))
	if strings.Contains(e.Path, "{name}") {
		d.line(2, "parameters:")
		d.line(3, "- name: name")
		d.line(4, "in: path")
		d.line(4, "required: true")
		d.line(4, "description: A label name.")
		d.line(4, "schema: {type: string, maxLength: %d}", MaxLabelNameBytes)
		d.line(4, "example: job")
	}
	for _, m := range e.Methods {
		d.operation(e, m)
	}
}

func (d *document) operation(e *Endpoint, method string) {
	id := string(e.ID)
	if method != e.Methods[0] {
		id += "_" + strings.ToLower(method)
	}
	d.line(2, "%s:", strings.ToLower(method))
	d.line(3, "operationId: %s", id)
	d.line(3, "tags: [%s]", e.Class)
	d.line(3, "description: %s", yamlText(strings.TrimSpace(e.Doc+" "+e.bounds())))
	switch {
	case e.snappy:
		d.line(3, "requestBody:")
		d.line(4, "required: true")
		d.line(4, "content:")
		d.line(5, "%s: {schema: {type: string, format: binary}}", protoType)
	case method == http.MethodPost:
		d.form(e)
	case len(e.Params) > 0:
		d.line(3, "parameters:")
		for i := range e.Params {
			p := &e.Params[i]
			d.line(4, "- name: %s", yamlText(p.Name))
			d.line(5, "in: query")
			d.line(5, "required: %v", p.Required)
			d.line(5, "description: %s", yamlText(p.Doc))
			if p.Repeated {
				d.line(5, "explode: true")
			}
			d.line(5, "schema: %s", p.schema())
			d.line(5, "example: %s", p.example())
		}
	}
	d.line(3, "responses:")
	d.line(4, `"200":`)
	d.line(5, "description: The answer.")
	d.line(5, "content:")
	d.line(6, "%s: {schema: %s}", e.media(), e.answer())
	for _, status := range []int{400, 401, 403, 422, 429, 500, 502, 503} {
		if e.Class == ClassLocal && status == http.StatusBadGateway {
			continue
		}
		d.line(4, `"%d": {$ref: "#/components/responses/%d"}`, status, status)
	}
}

// form is the body of a POST; all of it may as well stand in the URL.
func (d *document) form(e *Endpoint) {
	d.line(3, "requestBody:")
	d.line(4, "description: The parameters; they may as well stand in the URL.")
	d.line(4, "content:")
	d.line(5, "%s:", formType)
	d.line(6, "schema:")
	d.line(7, "type: object")
	var required []string
	d.line(7, "properties:")
	for i := range e.Params {
		p := &e.Params[i]
		d.line(8, "%s: %s", yamlText(p.Name), p.schema())
		if p.Required {
			required = append(required, yamlText(p.Name))
		}
	}
	if len(required) > 0 {
		d.line(7, "required: [%s]", strings.Join(required, ", "))
	}
}

// bounds says what the row is bounded by where the configuration says nothing else.
func (e *Endpoint) bounds() string {
	var out []string
	if e.Limits.Timeout > 0 {
		out = append(out, "at most "+e.Limits.Timeout.Round(time.Second).String())
	}
	if e.Limits.MaxSeries > 0 {
		out = append(out, strconv.Itoa(e.Limits.MaxSeries)+" results")
	}
	if e.Limits.MaxResponseBytes > 0 {
		out = append(out, strconv.FormatInt(e.Limits.MaxResponseBytes>>20, 10)+" MiB")
	}
	if len(out) == 0 {
		return ""
	}
	return "By default " + strings.Join(out, ", ") + "."
}

// media is the type of an answer.
func (e *Endpoint) media() string {
	if e.Media != "" {
		return e.Media
	}
	return acceptJSON
}

// answer is the schema of an answer.
func (e *Endpoint) answer() string {
	if e.Media != "" {
		return "{type: string}"
	}
	return `{$ref: "#/components/schemas/Success"}`
}

// schema is the parameter's, on one line.
func (p *Param) schema() string {
	one := p.value()
	if !p.Repeated {
		return one
	}
	most := p.MaxCount
	if most == 0 {
		most = MaxParameters
	}
	return fmt.Sprintf("{type: array, maxItems: %d, items: %s}", most, one)
}

func (p *Param) value() string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch p.Kind {
	case KindNumber:
		add("type: integer")
		add("minimum: %d", p.Min)
		if p.Max > 0 {
			add("maximum: %d", p.Max)
		}
	case KindBool:
		add("type: boolean")
	case KindTime, KindDuration:
		return fmt.Sprintf("{oneOf: [{type: number}, {type: string, maxLength: %d}]}", p.MaxBytes)
	default:
		add("type: string")
		if len(p.Words) > 0 {
			add("enum: [%s]", strings.Join(quotedWords(p.Words), ", "))
		} else if p.MaxBytes > 0 {
			add("maxLength: %d", p.MaxBytes)
		}
	}
	return "{" + strings.Join(out, ", ") + "}"
}

func quotedWords(words []string) (out []string) {
	for _, w := range words {
		out = append(out, yamlText(w))
	}
	return out
}

// example is the parameter's, as a value of its schema.
func (p *Param) example() string {
	v := p.Example
	switch p.Kind {
	case KindNumber, KindBool, KindTime: // they are written as YAML reads them
	default:
		v = yamlText(v)
	}
	if p.Repeated {
		return "[" + v + "]"
	}
	return v
}

// openAPIComponents are what all rows refer to.
var openAPIComponents = func() string {
	d := &document{}
	d.line(0, "components:")
	d.line(1, "responses:")
	for _, r := range []struct {
		status int
		says   string
	}{
		{400, "A parameter or an expression that Prometheus would refuse too."},
		{401, "Who asks is not known; WWW-Authenticate says what to send."},
		{403, "Who asks may not ask this."},
		{422, "A bound refused it: asking again unchanged is useless. The object spillway says which bound and what to do."},
		{429, "No room now; Retry-After says when to ask again."},
		{500, "A fault of Spillway; its log has the cause."},
		{502, "A server failed; it is named."},
		{503, "The deadline passed, or Spillway is stopping."},
	} {
		d.line(2, `"%d":`, r.status)
		d.line(3, "description: %s", yamlText(r.says))
		d.line(3, `content: {application/json: {schema: {$ref: "#/components/schemas/Error"}}}`)
	}
	d.b.WriteString(`  schemas:
    Success:
      type: object
      required: [status, data]
      properties:
        status: {type: string, enum: [success]}
        data: {description: As Prometheus has it.}
        warnings: {type: array, items: {type: string}, description: What is not as it was asked for.}
        infos: {type: array, items: {type: string}}
    Error:
      type: object
      required: [status, errorType, error]
      properties:
        status: {type: string, enum: [error]}
        errorType: {type: string}
        error: {type: string, description: A sentence that says what is wrong and what to do.}
        spillway:
          type: object
          properties:
            bound: {type: string}
            value: {type: string}
            seen: {type: string}
            advice: {type: string}
`)
	return d.b.String()
}()
