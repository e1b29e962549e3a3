package cost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const directoryText = `
currency: USD
prices: {NVIDIA-H100-80GB-HBM3: 2.5, "*H200*": 4, "NVIDIA-*": 1, AMD MI300 X: 7}
teams:
  - name: vision
    contact: "#vision-gpus"
    namespaces: [research-vision, research-vision-*]
    people:
      - {name: Ada, contact: ada@lab.example, namespaces: [user-ada, research-vision-ada]}
      - {name: Grace, namespaces: [user-grace]}
  - name: rest
    namespaces: [research-*]
`

func TestOwner(t *testing.T) {
	d, err := ParseDirectory([]byte(directoryText))
	if err != nil {
		t.Fatal(err)
	}
	labelFirst := *d
	labelFirst.Order = []Source{FromLabel, FromDirectory}
	labelOnly := *d
	labelOnly.Order = []Source{FromLabel}
	for _, c := range []struct {
		d                *Directory
		namespace, label string
		want             Owner
	}{
		{d, "research-vision", "audio", Owner{"vision", "", "#vision-gpus"}},
		{d, "research-vision-dev", "", Owner{"vision", "", "#vision-gpus"}},
		{d, "research-vision-ada", "", Owner{"vision", "Ada", "ada@lab.example"}}, // a name goes before a longer beginning
		{d, "user-grace", "", Owner{"vision", "Grace", "#vision-gpus"}},
		{d, "research-audio", "", Owner{"rest", "", ""}},
		{d, "research-audio", "audio", Owner{"rest", "", ""}},
		{d, "sandbox", "audio", Owner{"audio", "", ""}},
		{d, "sandbox", "vision", Owner{"vision", "", "#vision-gpus"}},
		{d, "sandbox", "", Owner{Unassigned, "", ""}},
		{&labelFirst, "research-vision", "audio", Owner{"audio", "", ""}},
		{&labelFirst, "research-vision", "", Owner{"vision", "", "#vision-gpus"}},
		{&labelOnly, "research-vision", "", Owner{Unassigned, "", ""}},
		{&Directory{}, "research-vision", "vision", Owner{"vision", "", ""}},
	} {
		if got := c.d.Owner(c.namespace, c.label); got != c.want {
			t.Errorf("%s with the label %q, order %v: %+v, not %+v", c.namespace, c.label, c.d.Order, got, c.want)
		}
	}
}

func TestPrice(t *testing.T) {
	d, err := ParseDirectory([]byte(directoryText))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]float64{
		"NVIDIA-H100-80GB-HBM3": 2.5, "NVIDIA-H200": 1, "H200-x": 4, "NVIDIA-A100": 1, "MI300": -1,
		"": -1, "NVIDIA H100 80GB HBM3": 2.5, "AMD-MI300-X": 7, "AMD MI300 X": 7,
	} {
		got, ok := d.Price(model)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("the price of %q is %v, not %v", model, got, want)
		}
	}
}

func TestDirectoryProblems(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "team: []", "line 1: team is no key: there are order, currency, prices, classes, cpu_price, memory_price, reserved, teams"},
		{"two documents", "currency: USD\n---\ncurrency: EUR", "second document"},
		{"order", "order: [labels, label, label]", "order[0]: \"labels\" is neither directory nor label\norder[2]: label is there twice"},
		{"negative price", "prices: {H100: -1}", "prices[H100]: -1 is no price"},
		{"price that is none", "prices: {H100: .nan}", "prices[H100]: NaN is no price"},
		{"star within", "prices: {\"A*B\": 1}", "prices[A*B]: a model is a name"},
		{"class", "classes: {Spot: {a: 1}}", "classes[Spot]: no node has that class: write it in small letters"},
		{"class of a cloud", "classes: {regular: {a: 1}}", "classes[regular]: a node that its labels call regular has the class on-demand"},
		{"class without prices", "classes: {spot: {}}", "classes[spot]: has no prices"},
		{"price of a class", "classes: {spot: {\"a*b\": -1}}", "classes[spot][a*b]: -1 is no price of a GPU hour"},
		{"cpu price", "cpu_price: -1\nmemory_price: .inf", "cpu_price: -1 is no price of an hour of one core: it must be 0 or more, and 1e+07 at most; without the key nothing of it is billed\nmemory_price: +Inf is no price of an hour of one GiB"},
		{"budget", "teams: [{name: a, budget: {amount: -5, per: week}}]", "teams[0].budget.amount: -5 is no budget: it must be 0 or more, and 1e+12 at most; without a budget leave the key out\nteams[0].budget.per: \"week\" is not known: a budget is one per month"},
		{"empty budget", "teams: [{name: a, budget: {}}]", "teams[0].budget: has no amount: write {amount: 1000, per: month}"},
		{"budget of a number", "teams: [{name: a, budget: 1000}]", "line 1: teams[0].budget: write {amount: 1000, per: month}"},
		{"budget of nothing", "teams: [{name: a, budget: }]", "line 1: teams[0].budget: is empty: write {amount: 1000, per: month}, or leave the key out"},
		{"budget with no amount", "teams: [{name: a, budget: {amount: , per: month}}]", "line 1: teams[0].budget.amount: is empty: write a number such as 2.10"},
		{"budget that is none", "teams: [{name: a, budget: {amount: .nan, per: month}}]", "teams[0].budget.amount: NaN is no budget"},
		{"budget with a key that is none", "teams: [{name: a, budget: {amount: 1, by: month}}]", "line 1: by is no key of teams[0].budget: there are amount, per"},
		{"empty price", "currency: USD\nprices:\n  '*H100*':\n  L4: 1", "line 3: prices[*H100*]: is empty: write a number such as 2.10"},
		{"price with a comma", "prices: {'*H100*': 2,10}", "prices[10]: is empty: write a number such as 2.10, with a point and not a comma"},
		{"empty price of a class", "classes:\n  spot:\n    '*H100*': ~", "line 3: classes[spot][*H100*]: is empty"},
		{"empty work", "cpu_price:\nmemory_price: null", "line 1: cpu_price: is empty: write a number such as 2.10, with a point and not a comma, or leave the key out\nline 2: memory_price: is empty"},
		{"price of words", "prices: {'*H100*': two}", "line 1: prices[*H100*]: \"two\" is no number: write one such as 2.10"},
		{"price in quotes with a comma", "prices: {'*H100*': '2,10'}", "line 1: prices[*H100*]: \"2,10\" is no number"},
		{"empty price by alias", "prices: {a: &x , b: *x}", "prices[b]: is empty"},
		{"huge price", "prices: {H100: 1e18}", "prices[H100]: 1e+18 is no price of a GPU hour: it must be 0 or more, and 1e+07 at most"},
		{"huge price of a class", "classes: {spot: {H100: 1e18}}", "classes[spot][H100]: 1e+18 is no price"},
		{"huge work", "cpu_price: 1e18\nmemory_price: 1e8", "cpu_price: 1e+18 is no price of an hour of one core: it must be 0 or more, and 1e+07 at most; without the key nothing of it is billed\nmemory_price: 1e+08 is no price"},
		{"teams that are no list", "teams: {name: a}", "line 1: teams: is no list: begin each of its entries with -"},
		{"a team that is a name", "teams: [vision]", "line 1: teams[0]: write its keys: name, contact, namespaces, budget, people"},
		{"a name that is a list", "teams: [{name: [a]}]", "line 1: teams[0].name: is no text"},
		{"prices that are a number", "prices: 2", "line 1: prices: write keys and values"},
		{"a list", "[a]", "line 1: write its keys: order, currency"},
		{"reserved", "reserved: yes", "reserved: \"yes\" is neither beside"},
		{"no name", "teams: [{namespaces: [a]}]", "teams[0].name: is empty"},
		{"unassigned", "teams: [{name: unassigned}]", "teams[0].name: unassigned is what is nobody's"},
		{"twice", "teams: [{name: a}, {name: a}]", "teams[1].name: there are two teams a"},
		{"claimed twice", "teams: [{name: a, namespaces: [x, \"y*\"]}, {name: b, people: [{name: P, namespaces: [x]}]}]", "teams[1].people[0].namespaces[0]: x is claimed at teams[0].namespaces[0] already"},
		{
			"no namespace", "teams: [{name: a, namespaces: [\"A_b\", \"a*b\", \"-a\", \"\"]}]",
			"teams[0].namespaces[0]: \"A_b\" is no namespace",
		},
		{"nobody", "teams: [{name: a, people: [{namespaces: [x]}]}]", "teams[0].people[0].name: is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseDirectory([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %s", err, c.want)
			}
		})
	}
	if d, err := ParseDirectory(nil); err != nil || d.Owner("a", "").Team != Unassigned {
		t.Errorf("an empty file: %v", err)
	}
}

func TestLoadDirectory(t *testing.T) {
	if _, err := LoadDirectory("missing.yaml"); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("a missing file: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, []byte("#"+strings.Repeat(" ", maxDirectoryBytes)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDirectory(large); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
	d, err := LoadDirectory("../../docs/examples/cost/directory.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Teams) == 0 || len(d.Prices) == 0 {
		t.Errorf("the example of the documentation is %+v", d)
	}
}

// FuzzParseDirectory: whatever the file says, it is refused, or each of its own namespaces has an
// owner that the file names, and one namespace has one.
func FuzzParseDirectory(f *testing.F) {
	f.Add([]byte(directoryText), "research-vision", "vision")
	f.Add([]byte("order: [label]\nteams: [{name: a, namespaces: ['*']}]"), "x", "")
	f.Add([]byte("prices: {'**': 1, '*': 2, 'a*': 3}"), "a", "b")
	f.Add([]byte("teams: [{name: a, people: [{name: p, namespaces: [a, 'a*']}]}]"), "a", "")
	f.Fuzz(func(t *testing.T, text []byte, namespace, label string) {
		d, err := ParseDirectory(text)
		if err != nil {
			return
		}
		teams := map[string]bool{Unassigned: true, label: true}
		for _, x := range d.Teams {
			teams[x.Name] = true
		}
		o := d.Owner(namespace, label)
		if !teams[o.Team] || o.Team == "" {
			t.Fatalf("%q belongs to %q, whom nobody named", namespace, o.Team)
		}
		if o != d.Owner(namespace, label) {
			t.Fatal("two answers to one question")
		}
		for _, x := range d.Teams {
			for _, p := range x.Namespaces {
				if got, ok := d.Lookup(p); !strings.HasSuffix(p, "*") && (!ok || got.Team != x.Name || got.Person != "") {
					t.Fatalf("%s is of team %s, and is said to be %+v", p, x.Name, got)
				}
			}
		}
		if p, ok := d.Price(namespace); ok && !(p >= 0) {
			t.Fatalf("a price of %v", p)
		}
	})
}
