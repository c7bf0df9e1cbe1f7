{{- define "adbuffer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name with the chart's behind, once; 53 bytes leave room for suffixes. */}}
{{- define "adbuffer.fullname" -}}
{{- $name := include "adbuffer.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods: never changes between upgrades, since a Deployment's selector cannot. */}}
{{- define "adbuffer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "adbuffer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "adbuffer.labels" -}}
{{ include "adbuffer.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ include "adbuffer.tag" . | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "adbuffer.tag" -}}
{{- .Values.image.tag | default .Chart.AppVersion -}}
{{- end -}}

{{- define "adbuffer.image" -}}
{{- printf "%s:%s" .Values.image.repository (include "adbuffer.tag" .) -}}
{{- end -}}

{{- define "adbuffer.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "adbuffer.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}
