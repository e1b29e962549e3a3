{{- define "spillway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "spillway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "spillway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "spillway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spillway.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "spillway.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: spillway
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels of one's own, own, and the chart's, labels, whose places they take but for those that its selectors go by; key is where the own ones are said. */}}
{{- define "spillway.ownLabels" -}}
{{- if .own -}}
{{- $all := fromYaml .labels -}}
{{- range $name, $value := .own -}}
{{- if and (has $name (list "app.kubernetes.io/name" "app.kubernetes.io/instance")) (ne (toString $value) (toString (get $all $name))) -}}
{{- fail (printf "%s: %s is the chart's own, by which it finds its objects: leave it out" $.key $name) -}}
{{- end -}}
{{- $_ := set $all $name $value -}}
{{- end -}}
{{- toYaml $all -}}
{{- else -}}
{{- .labels -}}
{{- end -}}
{{- end -}}

{{- define "spillway.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "spillway.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "spillway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A quantity of memory of Kubernetes in bytes. */}}
{{- define "spillway.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- /* Helm reads a number as float64, which prints as 2.1e+09. */ -}}
{{- $q := toString . -}}{{- if not (kindIs "string" .) -}}{{- $q = int64 . | toString -}}{{- end -}}
{{- mulf (regexFind "^[0-9.]+" $q | float64) (get $units (regexFind "[A-Za-z]*$" $q) | float64) | int64 -}}
{{- end -}}

{{/* A quantity of cpu in thousandths. */}}
{{- define "spillway.milli" -}}
{{- $q := toString . -}}
{{- if hasSuffix "m" $q -}}{{ trimSuffix "m" $q | int64 }}{{- else -}}{{ mulf (float64 $q) 1000 | int64 }}{{- end -}}
{{- end -}}

{{/* The memory.budget that fits the container, in MiB; 0 where it has no limit. The program needs
twice the budget and 256 MiB, and takes nine tenths of the container's memory at most. */}}
{{- define "spillway.budget" -}}
{{- $limit := get (get .Values.resources "limits" | default dict) "memory" | default "" -}}
{{- if $limit -}}
{{- $budget := div (sub (div (mul (include "spillway.bytes" $limit | int64) 9) 10) 268435456) 2097152 -}}
{{- if lt (int64 $budget) 32 -}}
{{- fail (printf "resources.limits.memory is %v, which leaves no room for requests: give Spillway 512Mi or more" $limit) -}}
{{- end -}}
{{- $budget -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{/* How many proxies there may be at once. */}}
{{- define "spillway.most" -}}
{{- if .Values.autoscaling.enabled -}}{{ int .Values.autoscaling.maxReplicas }}{{- else -}}{{ int .Values.replicaCount }}{{- end -}}
{{- end -}}

{{/* spillway.yaml: config, with the memory.budget and limits that fit, where it has none. */}}
{{- define "spillway.configured" -}}
{{- $config := deepCopy .Values.config -}}
{{- $budget := include "spillway.budget" . | int64 -}}
{{- if and $budget (not (hasKey (get $config "memory" | default dict) "budget")) -}}
{{- $_ := set $config "memory" (dict "budget" (printf "%dMiB" $budget)) -}}
{{- end -}}
{{- $most := include "spillway.most" . | int -}}
{{- $limits := get $config "limits" | default dict -}}
{{- if and (gt $most 1) (not (hasKey $limits "read_slots")) -}}
{{- $limits = merge (dict "read_slots" (max 1 (div 8 $most))) $limits -}}
{{- $_ := set $config "limits" $limits -}}
{{- end -}}
{{- /* More pods that share two pods' part of a server. The program takes a budget that is below max_shard_bytes for that, and refuses fewer calls than read_slots. */ -}}
{{- if and .Values.autoscaling.enabled (gt $most 2) -}}
{{- $query := div (include "spillway.size" (get $limits "max_shard_bytes" | default "512MiB") | int64) 1048576 -}}
{{- $ours := dict "shard_budget" (printf "%dMiB" (max $query (div 2048 $most))) "replica_calls" (max 12 (div 48 $most) (get $limits "read_slots")) -}}
{{- $_ := set $config "limits" (merge (deepCopy $limits) $ours) -}}
{{- end -}}
{{- if and .Values.state.enabled (not (hasKey $config "state_dir")) -}}
{{- $_ := set $config "state_dir" "/var/lib/spillway-state" -}}
{{- end -}}
{{- if and .Values.usageLog.enabled (not (hasKey $config "usage_log")) -}}
{{- $_ := set $config "usage_log" (dict "path" "/var/lib/spillway-usage/usage.jsonl") -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{- define "spillway.config" -}}
# {{ .Release.Name }}: made from the chart's value "config"
{{ include "spillway.configured" . }}
{{- end -}}

{{/* Where shards are looked up in this cluster's API server, as JSON: {"namespaces": […], "clusterWide": bool, "services": bool}. */}}
{{- define "spillway.discovery" -}}
{{- $found := dict "wide" .Values.rbac.clusterWide "slices" (or .Values.rbac.clusterWide (gt (len .Values.rbac.namespaces) 0)) "names" .Values.rbac.namespaces -}}
{{- $release := .Release.Namespace -}}
{{- range $group := (get .Values.config "groups" | default list) -}}
{{- range $sd := (get (get $group "shards_from" | default dict) "kubernetes_sd_configs" | default list) -}}
{{- if and (not (get $sd "api_server")) (not (get $sd "kubeconfig_file")) -}}
{{- $within := get $sd "namespaces" | default dict -}}
{{- $names := get $within "names" | default list -}}
{{- if not (kindIs "slice" $names) -}}{{- $names = list (toString $names) -}}{{- end -}}
{{- if get $within "own_namespace" -}}
{{- $names = append $names $release -}}
{{- end -}}
{{- if not $names -}}{{- $_ := set $found "wide" true -}}{{- end -}}
{{- if eq (get $sd "role") "endpointslice" -}}{{- $_ := set $found "slices" true -}}{{- end -}}
{{- $_ := set $found "names" (concat (get $found "names") $names) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names := get $found "names" | uniq | sortAlpha -}}
{{- if get $found "wide" -}}{{- $names = list -}}{{- end -}}
{{- dict "wide" (get $found "wide") "slices" (get $found "slices") "names" $names "any" (or (get $found "wide") (gt (len $names) 0)) | toJson -}}
{{- end -}}

{{/* What the account may do; the argument is whether endpointslices are looked at. */}}
{{- define "spillway.rules" -}}
{{- if . }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services, pods]
  verbs: [list, watch]
{{- else }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{/* The remediator: labels by which no Service and no policy of the proxy finds it. */}}
{{- define "spillway.remediator.name" -}}
{{- include "spillway.fullname" . -}}-remediator
{{- end -}}

{{- define "spillway.remediator.selectorLabels" -}}
app.kubernetes.io/name: remediator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "spillway.remediator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "spillway.remediator.selectorLabels" . }}
app.kubernetes.io/component: remediator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: spillway
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "spillway.remediator.account" -}}
{{- if .Values.remediator.serviceAccount.create -}}
{{- default (include "spillway.remediator.name" .) .Values.remediator.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.remediator.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The name of a release, root, where others with its name may be: with its namespace, in most characters.
Of the release a-spillway in the namespace team and of spillway in team-a it is one, here and in rbac.yaml: Helm refuses the second. */}}
{{- define "spillway.outside" -}}
{{- $whole := printf "%s-%s" .root.Release.Namespace (include "spillway.fullname" .root) -}}
{{- if gt (len $whole) (int .most) -}}
{{- /* Cut, two releases could have one name, and the second would take the first one's. */ -}}
{{- $whole = printf "%s-%s" (trunc (sub .most 9 | int) $whole | trimSuffix "-") (sha256sum $whole | trunc 8) -}}
{{- end -}}
{{- $whole -}}
{{- end -}}

{{/* The name of an object that stands in a namespace, in, which may be another one than the release's, root; what it has of the release's names is most characters. */}}
{{- define "spillway.placed" -}}
{{- if eq (default .root.Release.Namespace .in) .root.Release.Namespace -}}
{{- include "spillway.fullname" .root | trunc (int .most) | trimSuffix "-" -}}
{{- else -}}
{{- include "spillway.outside" . -}}
{{- end -}}
{{- end -}}

{{- define "spillway.remediator.role" -}}
{{- include "spillway.outside" (dict "root" . "most" 52) -}}-remediator
{{- end -}}

{{/* The path that the program serves under: --web.route-prefix, or else that of --web.external-url. */}}
{{- define "spillway.prefix" -}}
{{- $prefix := .Values.web.routePrefix -}}
{{- if and (not $prefix) .Values.web.externalUrl -}}{{- $prefix = (urlParse .Values.web.externalUrl).path -}}{{- end -}}
{{- trimSuffix "/" $prefix -}}
{{- end -}}

{{/* Requests are not above limits: the argument is resources, and their key. */}}
{{- define "spillway.checkResources" -}}
{{- $requests := get .resources "requests" | default dict -}}
{{- $limits := get .resources "limits" | default dict -}}
{{- if and (get $requests "memory") (get $limits "memory") (gt (include "spillway.bytes" (get $requests "memory") | int64) (include "spillway.bytes" (get $limits "memory") | int64)) -}}
{{- fail (printf "%s.requests.memory (%v) is above %s.limits.memory (%v)" .key (get $requests "memory") .key (get $limits "memory")) -}}
{{- end -}}
{{- if and (get $requests "cpu") (get $limits "cpu") (gt (include "spillway.milli" (get $requests "cpu") | int64) (include "spillway.milli" (get $limits "cpu") | int64)) -}}
{{- fail (printf "%s.requests.cpu (%v) is above %s.limits.cpu (%v)" .key (get $requests "cpu") .key (get $limits "cpu")) -}}
{{- end -}}
{{- end -}}

{{/* The usage log has a volume, and fits it: the kubelet ends a pod whose emptyDir is fuller than it may be. */}}
{{- define "spillway.checkUsageLog" -}}
{{- $said := get .Values.config "usage_log" | default dict -}}
{{- $path := get $said "path" | default "/var/lib/spillway-usage/usage.jsonl" | toString | clean -}}
{{- if or .Values.usageLog.enabled $said -}}
{{- $ours := and .Values.usageLog.enabled (hasPrefix "/var/lib/spillway-usage/" $path) -}}
{{- $found := or $ours (hasPrefix "/dev/" $path) (and .Values.state.enabled (hasPrefix "/var/lib/spillway-state/" $path)) -}}
{{- range .Values.extraVolumeMounts -}}
{{- if hasPrefix (printf "%s/" (clean .mountPath)) $path -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "config.usage_log.path: %s is on no volume, and the pod's root cannot be written; set usageLog.enabled and a path in /var/lib/spillway-usage, or mount one by extraVolumes and extraVolumeMounts" $path) -}}
{{- end -}}
{{- if $ours -}}
{{- $size := include "spillway.size" (get $said "max_size" | default "256MiB") | int64 -}}
{{- /* The kubelet counts blocks and the directory too, so that files that fill the volume are too much. */ -}}
{{- $most := mul $size (get $said "max_files" | default 8 | int64 | add1) -}}
{{- if gt $most (include "spillway.bytes" .Values.usageLog.sizeLimit | int64) -}}
{{- fail (printf "config.usage_log: max_files of max_size, and one more, are %d bytes, more than usageLog.sizeLimit (%v); a pod whose volume is fuller than that is evicted, and blocks and the directory count too" $most .Values.usageLog.sizeLimit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A size of spillway.yaml in bytes. */}}
{{- define "spillway.size" -}}
{{- $said := . -}}{{- if not (kindIs "string" $said) -}}{{- $said = int64 $said | toString -}}{{- end -}}
{{- $units := dict "" 1 "K" 1024 "M" 1048576 "G" 1073741824 "T" 1099511627776 -}}
{{- $unit := regexFind "[A-Za-z]*$" $said | trimSuffix "B" | trimSuffix "i" | upper -}}
{{- mulf (regexFind "^[0-9.]+" $said | float64) (get $units $unit | float64) | int64 -}}
{{- end -}}

{{/* What cannot be said by a schema. */}}
{{- define "spillway.check" -}}
{{- if and (not .Values.existingSecret) (not (get .Values.config "groups")) -}}
{{- fail "set config.groups: the servers that Spillway asks, or existingSecret: a Secret with spillway.yaml; the chart's README has the smallest values file" -}}
{{- end -}}
{{- if and .Values.existingSecret .Values.config -}}
{{- fail "existingSecret and config are both set: spillway.yaml comes from one of them" -}}
{{- end -}}
{{- if and .Values.admin.exposed (not .Values.web.existingSecret) -}}
{{- fail "admin.exposed needs web.existingSecret: a web configuration with passwords or client certificates, without which the admin listener does not start beyond loopback" -}}
{{- end -}}
{{- if and (or .Values.web.tls .Values.web.clientCertificates) (not .Values.web.existingSecret) -}}
{{- fail "web.tls and web.clientCertificates say what web.existingSecret holds, which is not set" -}}
{{- end -}}
{{- $limit := get (get .Values.resources "limits" | default dict) "memory" | default "" -}}
{{- if $limit -}}
{{- if gt (mul (include "spillway.budgetInForce" . | int64) 1048576) (include "spillway.bytes" $limit | int64) -}}
{{- fail (printf "config.memory.budget is more than resources.limits.memory (%v): Spillway needs twice the budget and 256 MiB" $limit) -}}
{{- end -}}
{{- end -}}
{{- include "spillway.checkUsageLog" . -}}
{{- include "spillway.checkResources" (dict "resources" .Values.resources "key" "resources") -}}
{{- if .Values.remediator.enabled -}}
{{- if and .Values.remediator.act (not .Values.remediator.existingSecret) -}}
{{- fail "remediator.act needs remediator.existingSecret: whoever could post to it without a token could cordon nodes" -}}
{{- end -}}
{{- if eq (include "spillway.name" .) "remediator" -}}
{{- fail "remediator.enabled and nameOverride remediator: the Service of the proxy would find the remediator's pod" -}}
{{- end -}}
{{- include "spillway.checkResources" (dict "resources" .Values.remediator.resources "key" "remediator.resources") -}}
{{- /* What is no regular expression matches nothing, this one the empty text too. */ -}}
{{- if not (regexMatch (printf "%s|" .Values.remediator.fleetAlerts) "") -}}
{{- fail (printf "remediator.fleetAlerts: %s is no regular expression" .Values.remediator.fleetAlerts) -}}
{{- end -}}
{{- if eq (include "spillway.remediator.account" .) "default" -}}
{{- fail "remediator.serviceAccount.name must be set where create is false, and not to default: that account is every pod's, which could all change nodes" -}}
{{- end -}}
{{- if eq (include "spillway.remediator.account" .) (include "spillway.serviceAccountName" .) -}}
{{- fail "remediator.serviceAccount.name is the account of the proxy, which must not change nodes" -}}
{{- end -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas (%v) is above autoscaling.maxReplicas (%v)" .Values.autoscaling.minReplicas .Values.autoscaling.maxReplicas) -}}
{{- end -}}
{{- if not (or (int .Values.autoscaling.targetCPUUtilizationPercentage) (int .Values.autoscaling.targetBudgetUtilizationPercentage) .Values.autoscaling.metrics) -}}
{{- fail "autoscaling.enabled needs one of targetCPUUtilizationPercentage, targetBudgetUtilizationPercentage and metrics" -}}
{{- end -}}
{{- if and .Values.existingSecret (int .Values.autoscaling.targetBudgetUtilizationPercentage) -}}
{{- fail "autoscaling.targetBudgetUtilizationPercentage is a share of memory.budget, which existingSecret has, where the chart cannot read it: set it to 0, and write the bytes into autoscaling.metrics (type Pods, metric spillway_memory_budget_used_bytes, target AverageValue)" -}}
{{- end -}}
{{- /* Kubernetes takes a limit for the request where there is none. */ -}}
{{- $cpu := get (get .Values.resources "requests" | default dict) "cpu" | default (get (get .Values.resources "limits" | default dict) "cpu") | default 0 -}}
{{- $alone := and (int .Values.autoscaling.targetCPUUtilizationPercentage) (not (int .Values.autoscaling.targetBudgetUtilizationPercentage)) (not .Values.autoscaling.metrics) -}}
{{- if and $alone (not (include "spillway.milli" $cpu | int64)) -}}
{{- fail "autoscaling.targetCPUUtilizationPercentage is a share of resources.requests.cpu, which is not set, and nothing else is looked at: set it (also where a LimitRange would), or autoscaling.targetBudgetUtilizationPercentage" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The memory.budget in force, in MiB: that of config, that which fits, or the program's default. */}}
{{- define "spillway.budgetInForce" -}}
{{- $said := get (get .Values.config "memory" | default dict) "budget" | default "" -}}
{{- if $said -}}
{{- div (include "spillway.size" $said | int64) 1048576 -}}
{{- else -}}
{{- default 512 (include "spillway.budget" . | int64) -}}
{{- end -}}
{{- end -}}
