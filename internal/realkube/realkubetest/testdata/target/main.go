// Command target is scraped: what it tells depends on its name alone, so that whoever scrapes it,
// whenever that is, has the same.
package main

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
)

func main() {
	name, err := os.Hostname()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	h := fnv.New32()
	fmt.Fprint(h, name)
	n := int(h.Sum32() % 9973)
	fmt.Println(http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "node_load1 %d.25\n", n)
		for gpu := range 4 {
			fmt.Fprintf(w, "gpu_temperature{gpu=\"%d\"} %d.125\n", gpu, 40+(n+gpu)%50)
		}
		for i, code := range []string{"200", "500"} {
			fmt.Fprintf(w, "http_requests_total{code=\"%s\"} %d\n", code, n*(5-i))
		}
		for i, le := range []string{"0.1", "1", "+Inf"} {
			fmt.Fprintf(w, "latency_seconds_bucket{le=\"%s\"} %d\n", le, n*(i+1))
		}
	})))
}
