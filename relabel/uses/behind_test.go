package uses

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestQueriesInTemplates notes templates whose queries stand behind other words than expr, and
// leaves alone what only uses these words.
func TestQueriesInTemplates(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		told             bool
	}{
		{"Azure's rules in Terraform", "rules.tf", "resource \"azurerm_monitor_alert_prometheus_rule_group\" \"g\" {\n  rule {\n    alert = \"Slow\"\n" +
			"    expression = <<EOT\nhistogram_quantile(0.99, sum(rate(job_seconds_bucket{a=\"${var.a}\"}[5m])) by (le))\n  > 3\nEOT\n  }\n}\n", true},
		{"an indented heredoc", "rules.tf", "rule {\n  expression = <<-EOT\n    sum(rate(errors_total[5m])) > 1\n  EOT\n}\n", true},
		{"Azure's rules in Bicep", "rules.bicep", "resource g 'Microsoft.AlertsManagement/prometheusRuleGroups@2023-03-01' = {\n  properties: {\n    rules: [\n" +
			"      {\n        alert: 'Slow'\n        expression: 'sum(rate(errors_total{a=\"b\"}[5m])) > 1'\n      }\n    ]\n  }\n}\n", true},
		{"Bicep with three quotes", "rules.bicep", "rules: [{\n  expression: '''\nsum(rate(errors_total[5m])) > 1\n'''\n}]\n", true},
		{"Google's policy", "policy.tf", "condition_prometheus_query_language {\n  query = \"sum(rate(errors_total{a=\\\"b\\\"}[5m])) > 1\"\n}\n", true},
		{"variables", "prod.tfvars", "alerts = { slow = { query = \"rate(errors_total[5m]) > 1\" } }\n", true},
		{"KEDA in a Helmfile", "scaled.yaml.gotmpl", "kind: ScaledObject\nspec:\n  triggers:\n  - type: prometheus\n    metadata:\n" +
			"      query: sum(rate(requests_total{ns=\"{{ .Namespace }}\"}[2m]))\n", true},
		{"KEDA that asks for a name", "scaled.yaml.gotmpl", "kind: ScaledObject\nspec:\n  triggers:\n  - type: prometheus\n    metadata: {query: queue_depth}\n", true},
		{"KEDA in Terraform", "scaled.tf", "manifest = {\n  kind = \"ScaledObject\"\n  spec = { triggers = [{ type = \"prometheus\", metadata = { query = \"sum(queue_depth)\" } }] }\n}\n", true},
		{"YAML in Terraform", "scaled.tf", "yaml_body = <<YAML\nkind: ScaledObject\ntriggers:\n- metadata:\n    query: |\n      sum(queue_depth)\nYAML\n", true},
		{"an analysis", "a.yaml.j2", "kind: AnalysisTemplate\nspec:\n  metrics:\n  - provider:\n      prometheus:\n        query: |\n" +
			"          sum(rate(errors_total{s=\"{{ s }}\"}[5m]))\n            / sum(rate(requests_total[5m]))\n", true},
		{"an analysis of one line", "a.yaml.j2", "prometheus:\n  query: >-\n    sum(errors_total)\n  address: x\n", true},
		{"another key", "a.tf", "metricQuery = \"max(queue_depth)\"\n", true},
		{"SQL", "sql.tf", "query = <<EOT\nSELECT count(*) FROM t WHERE a = 1\nEOT\n", false},
		{"SQL in a line", "sql.tf", "query = \"SELECT name, sum(x) FROM prometheus_rows GROUP BY name\"\n", false},
		{"a reference", "v.tf", "query = var.x\nexpression = local.some_query\n", false},
		{"a call", "v.tf", "query = templatefile(\"x.tpl\", { a = 1 })\nexpression = jsonencode({ a = 1 })\n", false},
		{"a GraphQL query", "g.tf", "query = \"query { a { b } }\"\n", false},
		{"Log Analytics", "kql.bicep", "query: 'AzureDiagnostics | where a == 1 | summarize count() by b'\n", false},
		{"a cron", "c.tf", "schedule_expression = \"rate(5 minutes)\"\nexpression = \"cron(0 1 * * ? *)\"\n", false},
		{"a condition", "i.tf", "condition { expression = \"request.time < timestamp('2027-01-01T00:00:00Z')\" }\n", false},
		{"a search for logs", "l.tf", "query = \"level:error AND service:api\"\n# beside prometheus\n", false},
		{"a search for a status", "l.tf", "query = \"status:500\"\n# beside prometheus\n", false},
		{"Grafana's math", "m.tf", "expression = \"$B > 0\"\n", false},
		{"a condition of a variable", "m.tf", "expression = \"${var.a} > 5\"\n", false},
		{"a metric that a variable names", "m.tf", "expression = \"rate(${var.metric}[5m]) > 5\"\n", true},
		{"a metric that a template names", "m.yaml.j2", "prometheus:\n  query: sum({{ metric }}{job=\"a\"})\n", true},
		{"a name alone", "d.tf", "query = \"some_table\"\n", false},
	} {
		dir := folder(t, "rules.yaml", "groups:\n- name: g\n  rules:\n  - {alert: A, expr: up == 0}\n", c.file, c.text)
		set := new(Set)
		if err := Rules(set, dir); err != nil {
			t.Fatal(err)
		}
		if got := len(set.Unrendered); (got == 1) != c.told || c.told && !strings.Contains(set.Unrendered[0], filepath.Join(dir, c.file)) {
			t.Errorf("%s: not rendered %q, warnings %q", c.name, set.Unrendered, set.Warnings)
		}
	}
}

// TestQueriesInOtherFiles warns of files whose extension says nothing.
func TestQueriesInOtherFiles(t *testing.T) {
	dir := folder(t, "a.yaml", "groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]\n", "x.kdl", "query: 'sum(rate(errors_total[5m]))'\n", "y.kdl", "query: 'a'\n")
	set := new(Set)
	if err := Rules(set, dir); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(set.Warnings, "\n"); !strings.Contains(said, "rules seem to be in "+dir+"/x.kdl (1 file)") {
		t.Errorf("warnings %q", said)
	}
}
