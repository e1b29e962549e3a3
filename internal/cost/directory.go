package cost

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Unassigned is the team of namespaces that neither the directory nor a label gives to anybody.
const Unassigned = "unassigned"

// maxDirectoryBytes is the largest directory file that is read.
const maxDirectoryBytes = 4 << 20

// Directory says whose a namespace is and what a GPU hour costs. The zero value knows nobody: then
// teams come from the namespaces' labels, and there are no prices.
type Directory struct {
	// Order is which source of a namespace's team is believed first. Default: directory, then
	// label. A label can be set by whoever may edit the namespace; the file is what the people who
	// pay have agreed on.
	Order []Source `yaml:"order"`
	// Currency is written beside money: USD, EUR, credits.
	Currency string `yaml:"currency"`
	// Prices are what one hour of one GPU costs, by the GPU's model as its nodes are labelled;
	// spaces are as good as the - of such labels; a * at the end or the beginning of a key stands
	// for anything. A key without * goes before one with it, and a longer key before a shorter one.
	Prices map[string]float64 `yaml:"prices"`
	// First are prices by model that go before all of Prices: those of the command line.
	First map[string]float64 `yaml:"-"`
	// Classes are prices by class of node (spot, on-demand, reserved), then by model as in Prices.
	// A class without a price of a model costs what Prices says.
	Classes map[string]map[string]float64 `yaml:"classes"`
	// CPUPrice and MemoryPrice are what an hour of a core and of a GiB of memory costs that pods
	// request on nodes without GPUs. Where neither is given such work is not billed.
	CPUPrice    *float64 `yaml:"cpu_price"`
	MemoryPrice *float64 `yaml:"memory_price"`
	// Reserved is what is done with GPUs that a taint keeps for a team and that nobody holds:
	// "beside" (the default) shows them beside the bill, "billed" bills them to the team.
	Reserved string `yaml:"reserved"`
	// Teams are those that pay.
	Teams []TeamEntry `yaml:"teams"`
}

// Source is where the team of a namespace is looked up.
type Source string

// The sources of a team.
const (
	FromDirectory Source = "directory" // this file
	FromLabel     Source = "label"     // the label of the Namespace object
)

// TeamEntry is one team of a directory.
type TeamEntry struct {
	Name string `yaml:"name"`
	// Contact is who is asked about the team's bill: an address, a channel.
	Contact string `yaml:"contact"`
	// Namespaces are the team's, by name, or by a name that ends with *.
	Namespaces []string `yaml:"namespaces"`
	// Budget is what the team may spend; nil for no limit.
	Budget *Budget `yaml:"budget"`
	// People have namespaces of their own, which count as the team's too.
	People []PersonEntry `yaml:"people"`
}

// PersonEntry is somebody with namespaces of their own.
type PersonEntry struct {
	Name       string   `yaml:"name"`
	Contact    string   `yaml:"contact"`
	Namespaces []string `yaml:"namespaces"`
}

// Owner is who pays for a namespace. Person is empty where the namespace is the team's as a whole.
type Owner struct{ Team, Person, Contact string }

// LoadDirectory reads a directory file; see ParseDirectory.
func LoadDirectory(file string) (*Directory, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the directory file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDirectoryBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the directory file %s: %w", file, err)
	}
	if len(text) > maxDirectoryBytes {
		return nil, fmt.Errorf("the directory file %s is larger than %d bytes", file, maxDirectoryBytes)
	}
	d, err := ParseDirectory(text)
	if err != nil {
		return nil, fmt.Errorf("the directory file %s:\n%w", file, err)
	}
	return d, nil
}

// ParseDirectory reads the text of a directory file. Unknown keys are errors; all problems of a
// file that can be decoded come at once, each with its path.
func ParseDirectory(text []byte) (*Directory, error) {
	d := &Directory{}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	err := dec.Decode(d)
	if types := (*yaml.TypeError)(nil); err == nil || errors.As(err, &types) {
		// That it was decoded bounds what its aliases come to.
		err = cmp.Or(strict(text), err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is a second document after ---: a directory is one")
	}
	return d, d.Validate()
}

// Validate returns everything that is wrong with d, each problem with its path.
func (d *Directory) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, s := range d.Order {
		if s != FromDirectory && s != FromLabel {
			bad("order[%d]: %q is neither directory nor label", i, s)
		}
		if slices.Contains(d.Order[:i], s) {
			bad("order[%d]: %s is there twice", i, s)
		}
	}
	checkPrices("--price", d.First, bad)
	checkPrices("prices", d.Prices, bad)
	d.checkWork(bad)
	d.checkClasses(bad)
	if r := d.Reserved; r != "" && r != reservedBeside && r != reservedBilled {
		bad("reserved: %q is neither %s (what stands free is shown, and in no row) nor %s (it is in the team's rows)", r, reservedBeside, reservedBilled)
	}
	teams := map[string]bool{}
	claimed := map[string]string{} // pattern to path
	claim := func(path string, patterns []string) {
		for i, p := range patterns {
			at := fmt.Sprintf("%s.namespaces[%d]", path, i)
			if !namespacePattern.MatchString(p) {
				bad("%s: %q is no namespace: small letters, digits and -, perhaps with a * at the end", at, p)
				continue
			}
			if other, ok := claimed[p]; ok {
				bad("%s: %s is claimed at %s already; a namespace is billed to one", at, p, other)
				continue
			}
			claimed[p] = at
		}
	}
	for i, t := range d.Teams {
		path := fmt.Sprintf("teams[%d]", i)
		switch {
		case strings.TrimSpace(t.Name) == "":
			bad("%s.name: is empty", path)
		case t.Name == Unassigned:
			bad("%s.name: %s is what is nobody's; call the team something else", path, Unassigned)
		case teams[t.Name]:
			bad("%s.name: there are two teams %s", path, t.Name)
		}
		teams[t.Name] = true
		t.Budget.check(path+".budget", bad)
		claim(path, t.Namespaces)
		for k, p := range t.People {
			at := fmt.Sprintf("%s.people[%d]", path, k)
			if strings.TrimSpace(p.Name) == "" {
				bad("%s.name: is empty", at)
			}
			claim(at, p.Namespaces)
		}
	}
	return errors.Join(errs...)
}

var namespacePattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?|([a-z0-9][-a-z0-9]*)?\*)$`)

// Lookup is who the directory says a namespace belongs to: the entry that names it, else the one
// with the longest beginning of it.
func (d *Directory) Lookup(namespace string) (Owner, bool) {
	var owner Owner
	best := -1
	try := func(patterns []string, o Owner) {
		for _, p := range patterns {
			if n := specificity(p, namespace); n > best {
				best, owner = n, o
			}
		}
	}
	for _, t := range d.Teams {
		try(t.Namespaces, Owner{Team: t.Name, Contact: t.Contact})
		for _, p := range t.People {
			contact := p.Contact
			if contact == "" {
				contact = t.Contact
			}
			try(p.Namespaces, Owner{Team: t.Name, Person: p.Name, Contact: contact})
		}
	}
	return owner, best >= 0
}

// Owner is who pays for a namespace whose own label says label (empty where it has none).
func (d *Directory) Owner(namespace, label string) Owner {
	order := d.Order
	if len(order) == 0 {
		order = []Source{FromDirectory, FromLabel}
	}
	for _, s := range order {
		switch s {
		case FromDirectory:
			if o, ok := d.Lookup(namespace); ok {
				return o
			}
		case FromLabel:
			if label == "" {
				continue
			}
			return Owner{Team: label, Contact: d.contact(label)}
		}
	}
	return Owner{Team: Unassigned}
}

// contact is who is asked about a team's bill; empty where the directory does not say.
func (d *Directory) contact(team string) string {
	for _, t := range d.Teams {
		if t.Name == team {
			return t.Contact
		}
	}
	return ""
}

// Price is what an hour of one GPU of a model costs.
func (d *Directory) Price(model string) (float64, bool) {
	if price, ok := priceIn(d.First, model); ok {
		return price, true
	}
	return priceIn(d.Prices, model)
}

// priceIn is the price that names a model most closely.
func priceIn(prices map[string]float64, model string) (float64, bool) {
	best, price := -1, 0.0
	for _, pattern := range sortedKeys(prices) { // sorted: of two equally long keys always the same one wins
		if n := priceFor(pattern, model); n > best {
			best, price = n, prices[pattern]
		}
	}
	return price, best >= 0
}

// priceFor is how closely a key of the prices names a model. Labels of nodes have a - where the
// model's name has a space, so that either may be written; as the node has it counts more.
func priceFor(key, model string) int {
	n := specificity(key, model)
	if spelled := specificity(ModelName(key), ModelName(model)); spelled >= 0 && n < 0 {
		n = min(spelled, math.MaxInt-1)
	}
	return n
}

// ModelName is the name of a GPU model as nodes are labelled with it.
func ModelName(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), " ", "-") }

// specificity is how closely a pattern names a word: -1 not at all, a whole name above every
// pattern with a *, a longer one above a shorter one.
func specificity(pattern, word string) int {
	rest, before := strings.CutPrefix(pattern, "*")
	rest, after := strings.CutSuffix(rest, "*")
	switch {
	case !before && !after:
		if pattern == word {
			return math.MaxInt
		}
		return -1
	case before && after && strings.Contains(word, rest), before && !after && strings.HasSuffix(word, rest),
		!before && after && strings.HasPrefix(word, rest):
		return len(rest)
	}
	return -1
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
