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

// TestHeadersAreWrittenOut: a header with a variable in the midst of it would be sent as it stands.
func TestHeadersAreWrittenOut(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{`Authorization: "Bearer ${TOKEN}"`, "groups[0].shards[0].replicas[0].headers.Authorization: values like ${file:…} and ${NAME} are not filled in here; " +
			"write the value out, or have the file filled in first (envsubst) (line 1)"},
		{`Authorization: "Bearer a$b{c}"`, ""},
		{`X-Price: "$5 ${"`, ""},
	} {
		got := ""
		if _, err := parseAt([]byte("groups: [{name: a, shards: [{replicas: [{url: 'http://h', headers: {"+c.header+"}}]}]}]\n"), ".", testNow); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.header, got, c.want)
		}
	}
}
