package relabel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spillwayproject/spillway/relabel/propose"
)

// maxPlanBytes bounds what Read takes. A plan with a rule for each of ten thousand metrics has a
// few megabytes.
const maxPlanBytes = 256 << 20

// Write writes the plan as JSON. Equal plans give equal bytes.
func (p *Plan) Write(w io.Writer) error {
	sum, err := p.sum()
	if err != nil {
		return err
	}
	out := *p
	out.Checksum = sum
	out.normalise()
	text, err := encode(&out)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Read reads a plan that Write wrote. Its rules can be applied at once: their Relabel is made again
// from what they say.
func Read(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPlanBytes+1))
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if len(text) > maxPlanBytes {
		return nil, fmt.Errorf("plan: longer than %d bytes: is that the right file?", maxPlanBytes)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("plan: this is no plan of `spillway relabel plan`: %w", err)
	}
	if version.Version != Version {
		return nil, fmt.Errorf("plan: its version is %d, and this program reads %d: make it again with `spillway relabel plan`", version.Version, Version)
	}
	p := new(Plan)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	sum, err := p.sum()
	if err != nil {
		return nil, err
	}
	if sum != p.Checksum {
		return nil, errors.New("plan: it was changed after it was made, so its proof is not about these rules: make it again with `spillway relabel plan`; what shall stay belongs into keep.yaml")
	}
	seen := map[string]bool{}
	for i := range p.Rules {
		r := &p.Rules[i]
		if err := complete(r); err != nil {
			return nil, fmt.Errorf("plan: rule %q: %w", r.ID, err)
		}
		if seen[r.ID] {
			return nil, fmt.Errorf("plan: there are two rules %q", r.ID)
		}
		seen[r.ID] = true
	}
	p.normalise()
	return p, nil
}

// complete makes what a rule's fields mean, and refuses fields that mean nothing.
func complete(r *propose.Rule) error {
	switch {
	case r.ID == "" || r.Job == "" || len(r.Metrics) == 0:
		return errors.New("it needs an id, a job and at least one metric")
	case (r.Kind == propose.Slice || r.Kind == propose.Buckets) && (r.Label == "" || len(r.Values) == 0):
		return fmt.Errorf("one of kind %s needs a label and values", r.Kind)
	case r.Kind == propose.Label && r.Label == "":
		return fmt.Errorf("one of kind %s needs a label", r.Kind)
	}
	configs, err := propose.Configs(r.Kind, r.Metrics, r.Label, r.Values)
	r.Relabel = configs
	return err
}

// sum is the checksum of the plan without its checksum.
func (p *Plan) sum() (string, error) {
	bare := *p
	bare.Checksum = ""
	bare.normalise()
	text, err := encode(&bare)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func encode(p *Plan) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // expressions are read by people
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return b.Bytes(), nil
}

// normalise gives lists without entries the one form that they have in a file: [], not null.
func (p *Plan) normalise() {
	p.Inputs.Sources = list(p.Inputs.Sources)
	p.Jobs = list(p.Jobs)
	p.Rules = list(p.Rules)
	p.Refused = list(p.Refused)
	p.Warnings = list(p.Warnings)
}

func list[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}
