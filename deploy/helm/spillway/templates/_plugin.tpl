{{/* What the chart of Grafana needs to be told, so that its pod has the plugin: values of that chart. deploy/kubernetes/grafana-plugin is made of them too. Grafana's variable GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS stands above its grafana.ini. */}}
{{- define "spillway.plugin.values" -}}
extraInitContainers:
  - name: spillway-grafana-plugin
    image: {{ printf "%s-grafana-plugin:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
    args: [--to=/var/lib/grafana/plugins]
    volumeMounts:
      - {name: grafana-plugins, mountPath: /var/lib/grafana/plugins}
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 128Mi}
    securityContext:
      runAsNonRoot: true
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
extraEmptyDirMounts:
  - {name: grafana-plugins, mountPath: /var/lib/grafana/plugins}
grafana.ini:
  plugins:
    allow_loading_unsigned_plugins: spillway-experiments-datasource
{{- end }}
