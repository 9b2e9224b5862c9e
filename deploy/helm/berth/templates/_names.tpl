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
