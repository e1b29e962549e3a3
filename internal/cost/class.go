package cost

import (
	"fmt"
	"math"
	"regexp"
	"strings"
)

// A node costs by how it was bought: on demand, as spot capacity that may be taken away, or
// reserved for years. Which of these it is, its labels say; every cloud has its own.

// The classes that the labels of clouds tell apart. A label of one's own may have others.
const (
	classSpot     = "spot"
	classOnDemand = "on-demand"
)

// DefaultClassLabels name the class of a node, as kube-state-metrics 2 spells its labels: those of
// Karpenter, EKS, GKE (with its older preemptible machines) and AKS.
var DefaultClassLabels = []string{
	"label_karpenter_sh_capacity_type", "label_eks_amazonaws_com_capacity_type", "label_cloud_google_com_gke_spot",
	"label_cloud_google_com_gke_preemptible", "label_kubernetes_azure_com_scalesetpriority",
}

// ClassHours are GPU hours billed of one class of nodes.
type ClassHours struct {
	Class    string `json:"class"`
	GPUHours Milli  `json:"gpu_hours"`
}

// borrowedRows are the classes that were billed at the model's price.
func (l *ledger) borrowedRows() (out []ClassHours) {
	if len(l.o.Directory.Classes) == 0 && !l.needs(Class) {
		return nil
	}
	for _, c := range sortedKeys(l.borrowed) {
		out = append(out, ClassHours{c, Milli(math.Round(l.borrowed[c] / float64(hourMillis) * 1000))})
	}
	return out
}

// classOf is the class that a label's value names: SPOT, ON_DEMAND and CAPACITY_BLOCK in one
// spelling with spot and on-demand; GKE says true where a node is one, AKS regular where it is not.
func classOf(value string) string {
	switch c := strings.ReplaceAll(strings.ToLower(value), "_", "-"); c {
	case "true":
		return classSpot
	case "false", "regular":
		return classOnDemand
	default:
		return c
	}
}

var className = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

// maxPrice is far above any: ten thousand million hours of it are still a number of hundredths.
const maxPrice = 1e7

// checkPrices is what is wrong with prices by model, at a path of the directory.
func checkPrices(path string, prices map[string]float64, bad func(format string, args ...any)) {
	for _, model := range sortedKeys(prices) {
		if p := prices[model]; !(p >= 0) || p > maxPrice {
			bad("%s[%s]: %v is no price of a GPU hour: it must be 0 or more, and %g at most", path, model, p, float64(maxPrice))
		}
		if model == "" || strings.Contains(strings.Trim(model, "*"), "*") || strings.Count(model, "*") > 2 {
			bad("%s[%s]: a model is a name, perhaps with a * at its beginning or end", path, model)
		}
	}
}

// checkClasses is what is wrong with the prices by class.
func (d *Directory) checkClasses(bad func(format string, args ...any)) {
	for _, class := range sortedKeys(d.Classes) {
		path := fmt.Sprintf("classes[%s]", class)
		switch {
		case !className.MatchString(class):
			bad("%s: no node has that class: write it in small letters with dashes, such as spot, on-demand or reserved", path)
		case classOf(class) != class:
			bad("%s: a node that its labels call %s has the class %s: write that", path, class, classOf(class))
		case len(d.Classes[class]) == 0:
			bad("%s: has no prices: give some by model, or leave the class out, and the model's price counts", path)
		}
		checkPrices(path, d.Classes[class], bad)
	}
}

// ClassPrice is what an hour of one GPU of a model costs on nodes of a class: the class' own price,
// else the model's. borrowed says that it is the model's for want of one: of nodes on demand, or
// of no class, that is the price.
func (d *Directory) ClassPrice(model, class string) (price float64, borrowed, ok bool) {
	if price, ok := priceIn(d.Classes[class], model); ok {
		return price, false, true
	}
	price, ok = d.Price(model)
	return price, ok && class != "" && class != classOnDemand, ok
}
