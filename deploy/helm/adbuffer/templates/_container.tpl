{{/* adbuffer's container but for what one mode alone has. */}}
{{- define "adbuffer.container" -}}
name: adbuffer
image: {{ include "adbuffer.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
args: [serve, --config, /etc/adbuffer/adbuffer.yaml]
env:
  {{- include "adbuffer.env" . | nindent 2 }}
resources:
  {{- toYaml (index .Values .Values.mode).resources | nindent 2 }}
{{- /* /readyz fails while the pools warm up (admin.warmup_timeout, 10 s at most) and
while adbuffer drains, never because of an SSP. */}}
startupProbe:
  httpGet: {path: /readyz, port: {{ if eq .Values.mode "edge" }}admin{{ else }}adbuffer-admin{{ end }}}
  periodSeconds: 1
  timeoutSeconds: 1
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /readyz, port: {{ if eq .Values.mode "edge" }}admin{{ else }}adbuffer-admin{{ end }}}
  periodSeconds: 2
  timeoutSeconds: 1
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: {{ if eq .Values.mode "edge" }}admin{{ else }}adbuffer-admin{{ end }}}
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 3
{{- end -}}

{{/*
For the chart of an application that depends on this one with mode: sidecar. Call all
of these with .Subcharts.adbuffer (README.md).
*/}}

{{/* An element of initContainers. */}}
{{- define "adbuffer.sidecar.container" -}}
{{- if ne .Values.mode "sidecar" -}}
{{- fail "adbuffer.sidecar.container: set mode: sidecar for the adbuffer subchart" -}}
{{- end -}}
- {{- include "adbuffer.container" . | nindent 2 }}
  restartPolicy: Always
  ports:
    - name: adbuffer-admin
      containerPort: {{ .Values.admin.port }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
    {{- include "adbuffer.securityContext" . | nindent 4 }}
  volumeMounts:
    {{- include "adbuffer.configMounts" . | nindent 4 }}
    {{- include "adbuffer.sidecar.volumeMounts" . | nindent 4 }}
{{- end -}}

{{/* Elements of the pod's volumes. */}}
{{- define "adbuffer.sidecar.volumes" -}}
{{ include "adbuffer.configVolumes" (list . (include "adbuffer.fullname" .)) }}
- name: adbuffer-socket
  emptyDir:
    sizeLimit: 1Mi
{{- end -}}

{{/* An element of volumeMounts of the application's container. */}}
{{- define "adbuffer.sidecar.volumeMounts" -}}
- name: adbuffer-socket
  mountPath: {{ .Values.sidecar.socketDirectory }}
{{- end -}}

{{/* Labels of the pod, which the PodMonitor looks for. */}}
{{- define "adbuffer.sidecar.podLabels" -}}
adbuffer: {{ include "adbuffer.fullname" . }}
{{- end -}}

{{/* The seconds that adbuffer takes to stop after the application: a part of the pod's terminationGracePeriodSeconds. */}}
{{- define "adbuffer.sidecar.stopSeconds" -}}
{{- add .Values.sidecar.drain.delaySeconds .Values.sidecar.drain.timeoutSeconds -}}
{{- end -}}
