{{/* Labels by which everything of the operator is found. */}}
{{- define "berth.selector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/component: operator
{{- end }}

{{/* Labels of everything that is installed. */}}
{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels by which everything of the server is found. */}}
{{- define "berth.serverSelector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/component: server
{{- end }}

{{/* How kubelet asks the server whether it is well: over TLS where it speaks that, and else from inside of its Pod. */}}
{{- define "berth.serverProbe" -}}
{{- if .Values.server.tls.secret -}}
httpGet: {path: /healthz, port: api, scheme: HTTPS}
{{- else -}}
exec: {command: [/usr/local/bin/berth-gate, check]}
{{- end }}
{{- end }}
