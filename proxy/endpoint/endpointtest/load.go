// Package endpointtest loads requests of real clients, byte for byte as they send them, for tests
// that replay them against the parser or a running proxy. The files and their format are described
// in proxy/endpoint/testdata/clients/README.md.
//
// It reads files of this repository only, whole, and is meant for tests.
package endpointtest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ClientRequest is one file: the bytes that a client sends and what they mean.
type ClientRequest struct {
	// Name is the file's name without extension.
	Name string
	// Client says who sends it.
	Client string
	// Note says what matters about the answer; may be empty.
	Note string
	// Status is what parsing has to come to: 200, or the status of the refusal.
	Status int
	// Endpoint is the ID of the row; empty where Status is not 200.
	Endpoint string
	// Label is the label name of label_values.
	Label string
	// Params are the parameters in canonical form, as a shard gets them.
	Params url.Values
	// Dropped are the names of the unknown parameters.
	Dropped []string
	// Raw is the request: head with CRLF, empty line, body.
	Raw []byte
}

// Load reads every .http file of dir, in the order of their names.
func Load(dir string) ([]ClientRequest, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.http"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no .http files in %s", dir)
	}
	out := make([]ClientRequest, 0, len(files))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		c, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		c.Name = strings.TrimSuffix(filepath.Base(f), ".http")
		out = append(out, c)
	}
	return out, nil
}

func parse(text []byte) (ClientRequest, error) {
	c := ClientRequest{Status: http.StatusOK, Params: url.Values{}}
	encoded := false
	for bytes.HasPrefix(text, []byte("#")) {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		key, value, ok := strings.Cut(strings.TrimPrefix(string(line), "# "), ": ")
		if !ok {
			return c, fmt.Errorf("the comment %q is not of the form \"# key: value\"", line)
		}
		var err error
		switch key {
		case "client":
			c.Client = value
		case "note":
			c.Note = value
		case "status":
			c.Status, err = strconv.Atoi(value)
		case "endpoint":
			c.Endpoint = value
		case "label":
			c.Label = value
		case "param":
			name, v, _ := strings.Cut(value, "=")
			c.Params.Add(name, v)
		case "dropped":
			c.Dropped = strings.Fields(value)
		case "body":
			encoded = value == "base64"
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return c, err
		}
	}
	head, body, ok := bytes.Cut(text, []byte("\n\n"))
	if !ok || c.Client == "" {
		return c, fmt.Errorf("it has no client, or no empty line after the head")
	}
	body = bytes.TrimSuffix(body, []byte("\n"))
	if encoded {
		plain, err := base64.StdEncoding.DecodeString(string(body))
		if err != nil {
			return c, err
		}
		body = plain
	}
	c.Raw = append(bytes.ReplaceAll(head, []byte("\n"), []byte("\r\n")), "\r\n\r\n"...)
	c.Raw = append(c.Raw, body...)
	return c, nil
}
