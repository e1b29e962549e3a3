package config

import "testing"

// TestRelabellingWrites: what a rule's regular expression found is written like a variable, and is
// none; nor is a dollar in a password.
func TestRelabellingWrites(t *testing.T) {
	text := `groups:
  - name: a
    shards_from:
      files: ["*.json"]
      relabel_configs:
        - {source_labels: [x], regex: "(?P<which>.*)", target_label: __spillway_shard__, replacement: "${which}"}
        - {source_labels: [x], target_label: __spillway_replica__, replacement: "${1}"}
      http_client: {basic_auth: {username: a, password: "p${w}d$"}}
`
	if _, err := parseAt([]byte(text), ".", testNow); err != nil {
		t.Error(err)
	}
}
