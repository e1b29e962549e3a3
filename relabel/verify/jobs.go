package verify

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/relabel/config"
	"github.com/spillwayproject/spillway/relabel/prove"
)

// job is a job with its rules as a chain.
type job struct {
	*config.Job
	server string // the prometheus.yml that was given, empty for monitors
	names  []string
	labels []string // the labels job of its series, as far as they are known
	// open says that series may have others, and why that they come from elsewhere than a monitor's
	// service.
	open bool
	why  string
	// foreign says that series may have a label job that is none of labels, so that a rule that
	// asks for another one may well find it.
	foreign bool
	// remote says that it is what is written to another server, of all jobs.
	remote bool
	// siblings are all endpoints of its monitor, itself among them.
	siblings []*job
	rules    []*rule // those that are rules, in order: the chain's configs
	shards   shards  // those that choose by a hash, which are left out
	chain    *prove.Chain

	named   []string        // see ruleNames
	touched map[string]bool // see touches
	takers  map[[2]string]*rule
	firsts  map[string]*rule // see first
	others  []*rule          // see further
}

// rule is a rule with what its expression names.
type rule struct {
	config.Rule
	words language
	known bool                // words were listed
	named map[string]bool     // see names
	asks  map[string][]string // see jobs
	odd   bool                // a word does not come apart into the values of the source labels

	pattern *pattern // see patternOf
}

// readJobs reads the configuration. A file that cannot be read is told and passed by.
func (r *Result) readJobs(o Options) []*job {
	var jobs []*job
	for _, file := range o.Prometheus {
		for _, j := range r.readPrometheus(file) {
			jobs = append(jobs, r.newJob(j, file, j.Labels))
		}
		jobs = append(jobs, r.readRemotes(file)...)
	}
	objects, problems := config.ReadObjects(o.Monitors...)
	for _, err := range problems {
		r.unchecked(err)
	}
	r.Unchecked = append(r.Unchecked, objects.Unread...)
	for _, j := range objects.Jobs {
		jobs = append(jobs, r.newJob(j, j.File, j.Labels))
	}
	jobs = append(jobs, r.newRemotes(objects.Remotes)...)
	for _, obj := range objects.Monitors {
		names := []string{obj.Namespace + "/" + obj.Name, obj.Name}
		told, ok := o.Jobs[names[0]]
		if ok {
			names = []string{told}
		}
		var siblings []*job
		for _, e := range obj.Endpoints {
			if !ok && !e.Open {
				names = []string{e.Label}
			}
			j := r.newJob(&e.Job, "", append([]string{e.Name}, names...))
			if ok {
				j.labels, j.why, j.foreign = []string{told}, "", e.Own != ""
			}
			siblings = append(siblings, j)
		}
		for _, j := range siblings {
			j.siblings = siblings
		}
		jobs = append(jobs, siblings...)
	}
	return r.skip(jobs, o.Skip)
}

// skip leaves out jobs by name.
func (r *Result) skip(jobs []*job, names []string) []*job {
	for _, name := range names {
		before := len(jobs)
		jobs = slices.DeleteFunc(jobs, func(j *job) bool { return j.Name == name && !j.remote })
		if len(jobs) == before {
			r.unchecked(fmt.Errorf("the job %q is to be left out, and no configuration has it", name))
			continue
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("the job %s is left out: what its rules take was not looked at", name))
	}
	return jobs
}

// newRemotes are what is written to other servers, as jobs whose series are those of all others.
func (r *Result) newRemotes(remotes []*config.Job) []*job {
	var out []*job
	for _, c := range remotes {
		j := r.newJob(c, c.File, nil)
		j.remote = true
		out = append(out, j)
	}
	return out
}

// couldBe says whether the matcher lets one of the monitor's names through, or a part of one:
// kube-apiserver is likely to be the monitor of the job apiserver.
func (j *job) couldBe(m *labels.Matcher) bool {
	for _, name := range j.names {
		parts := strings.Split(name[strings.LastIndex(name, "/")+1:], "-")
		for from := range parts {
			for to := from + 1; to <= len(parts); to++ {
				if m.Matches(strings.Join(parts[from:to], "-")) {
					return true
				}
			}
		}
		if m.Matches(name) {
			return true
		}
	}
	return false
}

// keptBeside says whether another endpoint of the monitor takes nothing of these metrics.
func (j *job) keptBeside(names []string) bool {
	return slices.ContainsFunc(j.siblings, func(other *job) bool {
		return other != j && !slices.ContainsFunc(names, other.touches)
	})
}

func (r *Result) readPrometheus(file string) []*config.Job {
	content, err := plainfile.Read(file)
	if err != nil {
		r.unchecked(err)
		return nil
	}
	jobs, include, err := config.Prometheus(file, content)
	if err != nil {
		r.unchecked(err)
	}
	for _, pattern := range include {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			r.unchecked(fmt.Errorf("%s: scrape_config_files names %s, and there is no such file here", file, pattern))
			continue
		}
		for _, f := range files {
			content, err := plainfile.Read(f)
			if err != nil {
				r.unchecked(err)
				continue
			}
			more, _, err := config.Prometheus(f, content)
			if err != nil {
				r.unchecked(err)
			}
			jobs = append(jobs, more...)
		}
	}
	return jobs
}

// readRemotes reads what a prometheus.yml writes to other servers; that it cannot be read was told.
func (r *Result) readRemotes(file string) []*job {
	content, err := plainfile.Read(file)
	if err != nil {
		return nil
	}
	remotes, err := config.Remotes(file, content)
	if err != nil {
		r.unchecked(err)
	}
	return r.newRemotes(remotes)
}

func (r *Result) newJob(c *config.Job, server string, names []string) *job {
	j := &job{Job: c, server: server, names: names, labels: c.Labels, open: c.Open || c.Own != ""}
	j.foreign = j.open || c.Beside
	switch {
	case c.Own != "":
		j.why = "it has " + c.Own
	case c.Open && server != "":
		j.why = "a rule takes it from another label"
	case c.Open: // a monitor whose service nobody gave
		j.labels = nil
	}
	var configs []*relabel.Config
	hashes := map[string]config.Rule{}
	for _, cr := range c.Rules {
		if cr.Config == nil {
			continue
		}
		if sharding(cr, hashes) {
			j.shards.add(cr, hashes)
			continue
		}
		ru := &rule{Rule: cr}
		if cr.Config.Regex.Regexp != nil {
			ru.words, ru.known = readLanguage(cr.Config.Regex.String())
		}
		j.rules = append(j.rules, ru)
		configs = append(configs, cr.Config)
	}
	chain, err := prove.NewChain(configs)
	if err != nil { // config has validated each
		r.unchecked(fmt.Errorf("%s:%d: job %s: %w", c.File, c.Line, c.Name, err))
		chain, _ = prove.NewChain(nil)
	}
	j.chain = chain
	return j
}

// sharding says whether a rule does nothing but choose the server's own part of a fleet: keep or
// drop by a hash that an earlier rule made. What it takes is on another server, as far as that is
// given (judgeShards), and of course it differs between them; so it is left out.
func sharding(cr config.Rule, hashes map[string]config.Rule) bool {
	c := cr.Config
	if c.Action == relabel.HashMod {
		hashes[c.TargetLabel] = cr
	}
	if c.Action != relabel.Keep && c.Action != relabel.Drop {
		return false
	}
	return len(c.SourceLabels) > 0 &&
		!slices.ContainsFunc(c.SourceLabels, func(l model.LabelName) bool { return hashes[string(l)].Config == nil })
}

// spelled writes a rule in one form, for comparisons.
func spelled(c *relabel.Config) string {
	regex := ""
	if c.Regex.Regexp != nil {
		regex = c.Regex.String()
	}
	var source []string
	for _, l := range c.SourceLabels {
		source = append(source, string(l))
	}
	return fmt.Sprintf("%s %q %q %q %d %q %q", strings.ToLower(string(c.Action)), source, c.Separator, regex, c.Modulus, c.TargetLabel,
		c.Replacement)
}

// compareServers holds the rules of each job against those of the first server that has it (trap
// 18: what one shard drops and another keeps is merged to half of it).
func (r *Result) compareServers(jobs []*job) {
	first := map[string]*job{}
	for _, j := range jobs {
		if j.server == "" {
			continue
		}
		a, ok := first[j.Name]
		if !ok {
			first[j.Name] = j
			continue
		}
		if a.server == j.server {
			continue
		}
		at := slices.IndexFunc(j.rules, func(ru *rule) bool {
			i := slices.Index(j.rules, ru)
			return i >= len(a.rules) || spelled(a.rules[i].Config) != spelled(ru.Config)
		})
		f := Finding{Severity: Broken, Check: CheckDiffers, Job: j.Name, Advice: "Give all servers that scrape the job the same rules, and at once: " +
			"answers over several of them mix series that some keep and others drop."}
		switch {
		case at >= 0 && at < len(a.rules):
			f.RuleFile, f.RuleLine = j.rules[at].File, j.rules[at].Line
			f.Text = fmt.Sprintf("rule %d of job %s differs from %s:%d", at+1, j.Name, a.rules[at].File, a.rules[at].Line)
		case at >= 0:
			f.RuleFile, f.RuleLine = j.rules[at].File, j.rules[at].Line
			f.Text = fmt.Sprintf("rule %d of job %s is missing in %s:%d", at+1, j.Name, a.File, a.Line)
		case len(j.rules) < len(a.rules):
			f.RuleFile, f.RuleLine = j.File, j.Line
			f.Text = fmt.Sprintf("job %s lacks the rule of %s:%d", j.Name, a.rules[len(j.rules)].File, a.rules[len(j.rules)].Line)
		default:
			continue
		}
		r.add(f)
	}
}
