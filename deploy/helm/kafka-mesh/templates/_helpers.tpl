{{/* What several templates share. */}}

{{- define "mesh.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}

{{/* Labels of pods, by which Services, policies and budgets find them. The release is not among them: a new chart with the
same images restarts no pod. (list root component) */}}
{{- define "mesh.selector" -}}
app.kubernetes.io/name: kafka-mesh
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "mesh.labels" -}}
{{ include "mesh.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{/* (list root service tag) */}}
{{- define "mesh.image" -}}
{{- $root := index . 0 }}{{ $image := $root.Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.prefix }}-{{ index . 1 }}:{{ index . 2 | default $image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{/* A service that listens, as others reach it: (list root name port) */}}
{{- define "mesh.address" -}}
{{ include "mesh.name" (index . 0) }}-{{ index . 1 }}:{{ index . 2 }}
{{- end }}

{{- define "mesh.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "mesh.closed" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods run, by the values of their service. */}}
{{- define "mesh.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Two pods of a component rather run on two hosts. (list root component) */}}
{{- define "mesh.apart" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "mesh.selector" . | nindent 14 }}
{{- end }}

{{- define "mesh.probes" -}}
startupProbe:
  httpGet: {path: /live, port: metrics}
  failureThreshold: 30
  periodSeconds: 2
livenessProbe:
  httpGet: {path: /live, port: metrics}
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /ready, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* One variable of a service: (list SERVICE NAME value). A number as JSON has it: 1000000, and not 1e+06. */}}
{{- define "mesh.set" -}}
{{- $value := index . 2 -}}
- {name: KAFKA_MESH_{{ index . 0 }}_{{ index . 1 }}, value: {{ ternary $value (toJson $value) (kindIs "string" $value) | toJson }}}
{{- end }}

{{/* The address by which pods of the mesh reach the first listener, with a name of its certificate. */}}
{{- define "mesh.bootstrap" -}}
{{- include "mesh.advertised" (list . (first .Values.gateway.listeners)) | replace "{node}" "bootstrap" }}
{{- end }}

{{/* The home cluster: (list root SERVICE) */}}
{{- define "mesh.home" -}}
{{- $home := (index . 0).Values.home }}{{ $service := index . 1 -}}
{{- if $home.bootstrapServers }}
{{- include "mesh.set" (list $service "HOME_BOOTSTRAP_SERVERS" (join "," $home.bootstrapServers)) }}
{{- else -}}
- name: KAFKA_MESH_{{ $service }}_HOME_BOOTSTRAP_SERVERS
  valueFrom: {configMapKeyRef: {name: {{ $home.existingConfigMap }}, key: bootstrap}}
{{- end }}
{{- with $home.properties }}
{{ include "mesh.set" (list $service "HOME_PROPERTIES" (toJson .)) }}
{{- end }}
{{- end }}

{{/* The database: (list root SERVICE) */}}
{{- define "mesh.database" -}}
{{- with (index . 0).Values.database -}}
- name: KAFKA_MESH_{{ index $ 1 }}_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}}
{{- end }}
{{- end }}

{{/* What each service mounts: its certificate, a scratch folder, files of secrets. */}}
{{- define "mesh.mounts" -}}
- {name: tls, mountPath: /etc/kafka-mesh/tls, readOnly: true}
- {name: scratch, mountPath: /tmp}
{{- if .Values.secrets.existingSecret }}
- {name: secrets, mountPath: /etc/kafka-mesh/secrets, readOnly: true}
{{- end }}
{{- end }}

{{/* (list root secret) */}}
{{- define "mesh.volumes" -}}
{{- with index . 1 -}}
- name: tls # the pod reads a renewed certificate without a restart
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{ end -}}
- name: scratch
  emptyDir: {}
{{- with (index . 0).Values.secrets.existingSecret }}
- name: secrets
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* A gateway's bound for a stop: it serves on, drains, and says goodbye within 10 s; 5 s more are a margin. */}}
{{- define "mesh.gatewayGrace" -}}
{{ add .Values.gateway.preStopSeconds .Values.gateway.drainSeconds 15 }}
{{- end }}

{{/* The address that clients of a listener get: (list root listener) */}}
{{- define "mesh.advertised" -}}
{{- $root := index . 0 }}{{ $listener := index . 1 -}}
{{- $listener.advertised | default (printf "%s-gateway.%s.svc:%d" (include "mesh.name" $root) $root.Release.Namespace (int $listener.port)) }}
{{- end }}
