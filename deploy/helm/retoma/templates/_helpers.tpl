{{- define "retoma.labels" -}}
app.kubernetes.io/name: retoma
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The labels that select the pods of one component: (list $ "server"). They must not change between releases. */}}
{{- define "retoma.selector" -}}
app.kubernetes.io/name: retoma
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* What the pods of all components have in common. */}}
{{- define "retoma.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What all containers have in common. The file system is read-only, except for these two folders. */}}
{{- define "retoma.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/retoma, readOnly: true}
  - {name: temporary, mountPath: /tmp}
  - {name: home, mountPath: /var/lib/retoma}
{{- end }}

{{- define "retoma.env" -}}
- {name: RETOMA_SECRETS_FOLDER, value: /run/secrets/retoma}
- {name: RETOMA_APP, value: {{ .Values.app | quote }}}
- {name: RETOMA_PUBLIC_URL, value: {{ required "publicUrl is required, such as https://retoma.example.com" .Values.publicUrl | quote }}}
- {name: RETOMA_FILES_URL, value: {{ required "filesUrl is required, such as s3://bucket/prefix" .Values.filesUrl | quote }}}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- /* The volumes of a pod: (list $ "2Gi"), with the size of the folder for temporary files. */}}
{{- define "retoma.volumes" -}}
- name: secrets
  secret: {secretName: {{ (index . 0).Values.secretName }}, defaultMode: 0440}
- name: temporary
  emptyDir: {sizeLimit: {{ index . 1 }}}
- name: home
  emptyDir: {sizeLimit: 12Gi}
{{- end }}

{{- define "retoma.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
