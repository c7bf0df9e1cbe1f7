{{/* adbuffer.yaml. What the container's variables set must not be in it too: they would win, silently. */}}
{{- define "adbuffer.config" -}}
{{- range $path, $value := dict
      "server.listen" "edge.port, or sidecar.socketDirectory"
      "server.socket_mode" "sidecar.socketMode"
      "server.drain" "edge.drain or sidecar.drain"
      "server.max_buffered_bytes" "edge.maxBufferedBytes or sidecar.maxBufferedBytes"
      "server.max_connections" "edge.maxConnections or sidecar.maxConnections"
      "admin.listen" "admin.port"
      "admin.token_file" "admin.tokenSecret" -}}
{{- $section := index $.Values.config (dir (replace "." "/" $path)) -}}
{{- if and (kindIs "map" $section) (hasKey $section (base (replace "." "/" $path))) -}}
{{- fail (printf "config.%s: the chart sets it so that it fits the pod; use the value %s" $path $value) -}}
{{- end -}}
{{- end -}}
{{ toYaml .Values.config }}
{{- end -}}

{{/* The variables: what has to fit the rest of the pod. */}}
{{- define "adbuffer.env" -}}
{{- $own := index .Values .Values.mode -}}
- name: ADBUFFER_SERVER_LISTEN
  {{- if eq .Values.mode "edge" }}
  value: {{ printf ":%d" (int .Values.edge.port) | quote }}
  {{- else }}
  value: {{ printf "unix:%s/adbuffer.sock" .Values.sidecar.socketDirectory | quote }}
- name: ADBUFFER_SERVER_SOCKET_MODE
  value: {{ .Values.sidecar.socketMode | quote }}
  {{- end }}
- name: ADBUFFER_ADMIN_LISTEN
  value: {{ printf ":%d" (int .Values.admin.port) | quote }}
{{- if .Values.admin.tokenSecret }}
- name: ADBUFFER_ADMIN_TOKEN_FILE
  value: /etc/adbuffer-admin/token
{{- end }}
- name: ADBUFFER_SERVER_DRAIN_DELAY
  value: {{ printf "%ds" (int $own.drain.delaySeconds) | quote }}
- name: ADBUFFER_SERVER_DRAIN_TIMEOUT
  value: {{ printf "%ds" (int $own.drain.timeoutSeconds) | quote }}
- name: ADBUFFER_SERVER_MAX_BUFFERED_BYTES
  value: {{ int64 $own.maxBufferedBytes | quote }}
- name: ADBUFFER_SERVER_MAX_CONNECTIONS
  value: {{ int $own.maxConnections | quote }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The configuration is mounted as a directory: a subPath never changes again, and adbuffer would not see a reload. */}}
{{- define "adbuffer.configMounts" -}}
- name: adbuffer-config
  mountPath: /etc/adbuffer
  readOnly: true
{{- if .Values.admin.tokenSecret }}
- name: adbuffer-admin
  mountPath: /etc/adbuffer-admin
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod's volumes; called with a list of the root context and the ConfigMap's name. */}}
{{- define "adbuffer.configVolumes" -}}
{{- $configMap := index . 1 -}}
{{- with index . 0 -}}
- name: adbuffer-config
  configMap:
    name: {{ $configMap }}
{{- if .Values.admin.tokenSecret }}
- name: adbuffer-admin
  secret:
    secretName: {{ .Values.admin.tokenSecret }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "adbuffer.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "adbuffer.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
