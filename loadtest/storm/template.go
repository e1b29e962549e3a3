package storm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// vars are what the variables of a template stand for.
type vars struct {
	now     time.Time
	n       int // of the request within its part
	cluster string
	pods    []string
}

// expand replaces the variables of a template:
//
//	${now} ${now-30d}   seconds since 1970, now or so long ago
//	${n} ${n%40}        the number of the request in its part, or its rest
//	${cluster}          a matcher for one cluster with a comma, in turn; nothing where the target is
//	                    one cluster
//	${pod}              a pod's name, in turn
func expand(template string, v vars) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		text, ok := v.value(name)
		if !closed || !ok {
			return "", fmt.Errorf("${%s}: the variables are ${now}, ${now-30d}, ${n}, ${n%%40}, ${cluster} and ${pod}", name)
		}
		b.WriteString(text)
		template = after
	}
}

func (v vars) value(name string) (string, bool) {
	switch name {
	case "n":
		return strconv.Itoa(v.n), true
	case "now":
		return strconv.FormatInt(v.now.Unix(), 10), true
	case "cluster":
		return v.cluster, true
	case "pod":
		if len(v.pods) == 0 {
			return "none", true
		}
		return v.pods[v.n%len(v.pods)], true
	}
	if ago, ok := strings.CutPrefix(name, "now-"); ok {
		d, err := model.ParseDuration(ago)
		return strconv.FormatInt(v.now.Add(-time.Duration(d)).Unix(), 10), err == nil
	}
	if rest, ok := strings.CutPrefix(name, "n%"); ok {
		m, err := strconv.Atoi(rest)
		if err != nil || m < 1 {
			return "", false
		}
		return strconv.Itoa(v.n % m), true
	}
	return "", false
}
