package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCostPrice: a --price goes before every key of the file's prices, also one that names the
// model more closely; the price of a class goes before it.
func TestCostPrice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "directory.yaml")
	const text = "prices: {NVIDIA-H100-80GB-HBM3: 2.1, '*H200*': 2.9}\nclasses: {spot: {NVIDIA-H100-80GB-HBM3: 1.1}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, err := costDirectory(file, []string{"*H100*=9"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model, class string
		want         float64
	}{{"NVIDIA-H100-80GB-HBM3", "", 9}, {"NVIDIA-H100-80GB-HBM3", "spot", 1.1}, {"NVIDIA-H100-PCIe", "spot", 9}, {"NVIDIA-H200", "", 2.9}} {
		if got, _, ok := d.ClassPrice(c.model, c.class); got != c.want || !ok {
			t.Errorf("%s of class %q costs %v, not %v", c.model, c.class, got, c.want)
		}
	}
}
