{{/* Labels by which everything of the operator is found. */}}
{{- define "berth.selector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/component: operator
{{- end }}

{{/* Labels by which everything of the server is found. */}}
{{- define "berth.serverSelector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/component: server
{{- end }}

{{/* Labels that say which release something is of. */}}
{{- define "berth.release" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of what is the operator's. */}}
{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
{{ include "berth.release" . }}
{{- end }}

{{/* Labels of what is the server's. */}}
{{- define "berth.serverLabels" -}}
{{ include "berth.serverSelector" . }}
{{ include "berth.release" . }}
{{- end }}

{{/* Labels of what is neither's. */}}
{{- define "berth.sharedLabels" -}}
app.kubernetes.io/name: berth
{{ include "berth.release" . }}
{{- end }}

{{/* The image of both, and when it is fetched. */}}
{{- define "berth.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion | toString) | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* Where the Pods of both may run, and with what their image is fetched. */}}
{{- define "berth.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What both may reach: the API server, and names. */}}
{{- define "berth.egress" -}}
- ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
  - protocol: TCP
    port: {{ int . }}
  {{- end }}
- ports:
  - protocol: UDP
    port: 53
  - protocol: TCP
    port: 53
{{- end }}

{{/* How kubelet asks the server whether it is well: over TLS where it speaks that, and else from inside of its Pod. */}}
{{- define "berth.serverProbe" -}}
{{- if .Values.server.tls.secret -}}
httpGet: {path: /healthz, port: api, scheme: HTTPS}
{{- else -}}
exec: {command: [/usr/local/bin/berth-gate, check]}
{{- end }}
{{- end }}

{{/* The port of the provider of single sign-on, if there is one. */}}
{{- define "berth.providerPort" -}}
{{- with .Values.server.oidc.issuer -}}
{{- regexFind "^https://[^/]+:[0-9]+" . | regexFind "[0-9]+$" | default "443" }}
{{- end }}
{{- end }}

{{/* Refuses what would have no effect, since whoever set it expects one, and what would have another than it seems. */}}
{{- define "berth.check" -}}
{{- if and .Values.networkPolicy.create (not .Values.networkPolicy.apiServerPorts) }}
{{- fail "networkPolicy.apiServerPorts names no port, which would open all of them" }}
{{- end }}
{{- if kindIs "float64" .Values.image.tag }}
{{- fail "image.tag is read as a number, which would not be written as it was: write it in quotes" }}
{{- end }}
{{- with .Values.server }}
{{- if and .tls.publicName (not .tls.secret) }}
{{- fail "server.tls.publicName needs server.tls.secret, with the certificate for that name" }}
{{- end }}
{{- if and (ne .service.type "ClusterIP") (not .tls.secret) }}
{{- fail "server.service.type needs server.tls.secret: without a certificate there is no Service" }}
{{- end }}
{{- if and .oidc.issuer (not (regexMatch "^https://[^/:@?#\"'\\s]+(:[0-9]+)?(/[^@?#\"'\\s]*)?$" .oidc.issuer)) }}
{{- fail "server.oidc.issuer is no address of a provider: write it as https://id.example" }}
{{- end }}
{{- range $name, $value := omit .oidc "issuer" }}
{{- if and $value (not $.Values.server.oidc.issuer) }}
{{- fail (printf "server.oidc.%s needs server.oidc.issuer" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
