package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/deny"
)

// DenyRule refuses requests for a reason. What is empty matches every request.
type DenyRule struct {
	// Name is unique among the rules.
	Name string `yaml:"name" is:"required pattern=^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"`
	// Reason is what the caller is told.
	Reason string `yaml:"reason" is:"required"`
	// Until is when the rule ends, a time; the zero value is never.
	Until Moment `yaml:"until"`
	// Shadow counts and refuses nothing.
	Shadow bool `yaml:"shadow"`
	// Endpoint is a row of the endpoint table.
	Endpoint string `yaml:"endpoint" is:"filled"`
	// Tenant is the tenant's name.
	Tenant string `yaml:"tenant" is:"filled"`
	// User is the caller's user.
	User string `yaml:"user" is:"filled"`
	// Dashboard is the dashboard's uid.
	Dashboard string `yaml:"dashboard" is:"filled"`
	// Panel is the panel's id.
	Panel string `yaml:"panel" is:"filled"`
	// Query is a whole query.
	Query string `yaml:"query" is:"filled"`
	// Regex is an anchored regular expression over the query.
	Regex string `yaml:"regex" is:"filled"`
	// Selector is a series selector of which one of the request's has all matchers.
	Selector string `yaml:"selector" is:"filled"`
	// Range is how far the request reaches at least; 0 is any.
	Range time.Duration `yaml:"range"`
	// Step is the step of a range query at most; 0 is any.
	Step time.Duration `yaml:"step"`
}

func (DenyRule) meaning() map[string]string {
	return map[string]string{
		"name":      "Unique; the refusal, the log and the list of rules call it by this.",
		"reason":    "What those who are refused are told: who refuses it, and whom to ask.",
		"until":     "When the rule ends, a time such as `2026-12-01T00:00:00Z`. Without it the rule stays.",
		"shadow":    "Counts what the rule would refuse, and lets it through.",
		"endpoint":  "A row of [endpoints.md](endpoints.md), such as `query_range`.",
		"tenant":    "The tenant's name.",
		"user":      "The caller's user.",
		"dashboard": "The dashboard's uid.",
		"panel":     "The panel's id.",
		"query":     "A whole query, compared as Prometheus prints it; for metadata the selectors of `match[]`, joined by a comma and a space.",
		"regex":     "A regular expression over the same text, anchored at both ends; at most 20 rules have one.",
		"selector":  "A series selector: one of the request's has all its matchers, as they are written.",
		"range":     "How far the request reaches at least, from the oldest sample that it may read to the newest.",
		"step":      "The step of a range query at most.",
	}
}

// Rule is the rule as package deny has it.
func (d DenyRule) Rule() deny.Rule {
	r := deny.Rule{
		Name: d.Name, Reason: d.Reason, Shadow: d.Shadow, Endpoint: d.Endpoint, Tenant: d.Tenant, User: d.User, Dashboard: d.Dashboard,
		Panel: d.Panel, Query: d.Query, Regex: d.Regex, Selector: d.Selector, Range: model.Duration(d.Range), Step: model.Duration(d.Step),
	}
	if d.Until.Set {
		r.Until = d.Until.Abs
	}
	return r
}

// CheckDeny tells what a rule names that is not there, and therefore matches no request. The error
// begins with the field and a colon.
func (c *Config) CheckDeny(r deny.Rule) error {
	if r.Endpoint != "" {
		names := make([]string, len(endpointIDs))
		for i, id := range endpointIDs {
			names[i] = string(id)
		}
		if !slices.Contains(names, r.Endpoint) {
			return fmt.Errorf("endpoint: there is none that is called %.64q; %s", r.Endpoint,
				strings.Replace(suggest(r.Endpoint, "", names), "the keys here are", "they are", 1))
		}
	}
	if r.Tenant == "" {
		return nil
	}
	names := make([]string, len(c.Tenants))
	for i := range c.Tenants {
		names[i] = c.Tenants[i].Name
	}
	switch {
	case slices.Contains(names, r.Tenant):
		return nil
	case len(names) == 0:
		return fmt.Errorf("tenant: there are no tenants, so none is called %.64q", r.Tenant)
	}
	return fmt.Errorf("tenant: there is none that is called %.64q; %s", r.Tenant,
		strings.Replace(suggest(r.Tenant, "", names), "the keys here are", "they are", 1))
}

// deny checks the rules that refuse requests.
func (v *validator) deny(c *Config) {
	all := c.Deny
	names, regexes := map[string]string{}, 0
	if len(all) > deny.MaxRules {
		v.problem("deny", "%d rules are more than a request is compared with (%d)", len(all), deny.MaxRules)
		return
	}
	for i, d := range all {
		path := "deny[" + strconv.Itoa(i) + "]"
		if d.Until.Rel != 0 {
			v.problem(path+".until", "%s is a distance from now, which never comes; give a time, such as 2026-12-01T00:00:00Z", d.Until)
		}
		if first, twice := names[d.Name]; twice && d.Name != "" { // which is told below
			v.problem(path+".name", "the name %s is taken by %s; names are unique", d.Name, first)
		}
		names[d.Name] = path
		if d.Regex != "" {
			regexes++
		}
		if err := cmp.Or(deny.Check(d.Rule()), c.CheckDeny(d.Rule())); err != nil {
			if field, what, _ := strings.Cut(err.Error(), ": "); what != "" && !strings.Contains(field, " ") {
				v.problem(path+"."+field, "%s", what)
			} else {
				v.problem(path, "%s", err)
			}
		}
	}
	if regexes > deny.MaxRegexes {
		v.problem("deny", "%d rules have a regex; at most %d, since each costs every request", regexes, deny.MaxRegexes)
	}
}
