// Command says logs who asks it.
package main

import (
	"fmt"
	"net/http"
)

func main() {
	fmt.Println(http.ListenAndServe(":8080", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("asked for", r.URL.Path)
	})))
}
