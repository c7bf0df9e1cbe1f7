package manifesttest

import (
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"

	"adbuffer/internal/testsupport"
)

// lintFindings returns the findings of `helm lint --strict`, without mere advice.
func lintFindings(dir string, v map[string]any) []string {
	var all []string
	for _, m := range lint.All(dir, v, "edge", true).Messages {
		if m.Severity >= support.WarningSev {
			all = append(all, m.Error())
		}
	}
	return all
}

func TestLintFindsNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/values-*.yaml")
	testsupport.NoError(t, err)
	for _, f := range files {
		for _, m := range lintFindings(chartDir, values(t, f)) {
			t.Errorf("%s: %s", f, m)
		}
	}
}

func TestSchemaRefusesWrongValues(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"replicas: 3", "additional properties 'replicas' not allowed"},
		{"mode: daemonset", "must be one of 'edge', 'sidecar'"},
		{"image: {repositry: x}", "'repositry' not allowed"},
		{`image: {repository: ""}`, "/image/repository"},
		{"image: {tag: a b}", "/image/tag"},
		{"image: {pullPolicy: Sometimes}", "/image/pullPolicy"},
		{"config: {ssps: []}", "/config/ssps"},
		{"config: {routes: [{name: x}]}", "/config/routes/0"},
		{"config: none", "/config"},
		{"checkConfig: 1", "/checkConfig"},
		{"admin: {port: 90}", "/admin/port"},
		{"admin: {port: '9090'}", "/admin/port"},
		{"admin: {token: secret}", "'token' not allowed"},
		{"edge: {replicas: -1}", "/edge/replicas"},
		{"edge: {replicas: 1.5}", "/edge/replicas"},
		{"edge: {preStopSeconds: 0}", "/edge/preStopSeconds"},
		{"edge: {drain: {timeoutSeconds: 20s}}", "/edge/drain/timeoutSeconds"},
		{"edge: {drain: {timeout: 20}}", "'timeout' not allowed"},
		{"edge: {maxBufferedBytes: 256Mi}", "/edge/maxBufferedBytes"},
		{"edge: {resources: {limits: {memory: null}}}", "/edge/resources/limits"},
		{"edge: {resources: {limits: {memory: 1GB}}}", "/edge/resources/limits/memory"},
		{"edge: {resources: {limit: {memory: 1Gi}}}", "'limit' not allowed"},
		{"edge: {service: {type: ExternalName}}", "/edge/service/type"},
		{"edge: {service: {annotations: {a: 1}}}", "/edge/service/annotations"},
		{"edge: {autoscaling: {poolSaturation: 60}}", "/edge/autoscaling/poolSaturation"},
		{"edge: {autoscaling: {minReplicas: 0}}", "/edge/autoscaling/minReplicas"},
		{"edge: {podDisruptionBudget: {maxUnavailable: 100%}}", "/edge/podDisruptionBudget/maxUnavailable"},
		{"edge: {networkPolicy: {clients: [{}]}}", "/edge/networkPolicy/clients/0"},
		{"edge: {networkPolicy: {clients: [{podselector: {}}]}}", "'podselector' not allowed"},
		{"sidecar: {socketDirectory: run/adbuffer}", "/sidecar/socketDirectory"},
		{"sidecar: {socketMode: '660'}", "/sidecar/socketMode"},
		{"podMonitor: {interval: 15}", "/podMonitor/interval"},
		{"podLabels: {team: 7}", "/podLabels"},
		{"extraEnv: [{value: x}]", "/extraEnv/0"},
		{"tolerations: {key: x}", "/tolerations"},

		// Templates check the rules that a schema cannot express.
		{"config: {server: {listen: ':80'}}", "config.server.listen: the chart sets it so that it fits the pod; use the value edge.port"},
		{"config: {server: {drain: {delay: 1s}}}", "use the value edge.drain or sidecar.drain"},
		{"config: {admin: {token_file: /x}}", "use the value admin.tokenSecret"},
		{"edge: {autoscaling: {minReplicas: 13}}", "must not be above maxReplicas"},
		{"edge: {autoscaling: {cpuUtilization: 0, poolSaturation: 0}}", "set cpuUtilization or poolSaturation"},
	} {
		v, err := chartutil.ReadValues([]byte(c.values))
		testsupport.NoError(t, err)
		_, err = renderChart(v)
		if err == nil {
			t.Errorf("%s: accepted", c.values)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %q in it", c.values, err, c.want)
		}
	}
}

// The schema describes every value. Each value in the schema is documented in values.yaml, except
// for Helm's own two.
func TestSchemaAndValuesNameTheSame(t *testing.T) {
	c, err := loader.LoadDir(chartDir)
	testsupport.NoError(t, err)
	var schema map[string]any
	testsupport.NoError(t, yaml.Unmarshal(c.Schema, &schema))
	defs := schema["$defs"].(map[string]any)
	var compare func(path string, schema map[string]any, v map[string]any)
	compare = func(path string, schema map[string]any, v map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		properties, ok := schema["properties"].(map[string]any)
		if !ok || path == ".config" || strings.HasSuffix(path, ".resources") {
			return
		}
		testsupport.True(t, schema["additionalProperties"] == false, "%s: the schema lets unknown values through", path)
		for name, of := range properties {
			value, ok := v[name]
			if !ok && name != "global" && name != "enabled" {
				t.Errorf("%s.%s is in the schema and not in values.yaml", path, name)
			}
			if below, ok := value.(map[string]any); ok {
				compare(path+"."+name, of.(map[string]any), below)
			}
		}
	}
	compare("", schema, c.Values)
}

func TestNotesNameTheNextSteps(t *testing.T) {
	for file, want := range map[string][]string{
		"testdata/values-default.yaml":  {"http://ads-adbuffer.edge.svc/fillbuffer", "respond 403", "up to 12 replicas", `WARNING: the SSP "openx"`},
		"testdata/values-full.yaml":     {"http://ads-ads-proxy.edge.svc:8080/fillbuffer", "secret ads-admin"},
		"testdata/values-cpu-only.yaml": {"none, as it is empty"},
		"testdata/values-sidecar.yaml":  {"ConfigMap ads-adbuffer"},
	} {
		text := notes(t, values(t, file))
		for _, w := range want {
			testsupport.True(t, strings.Contains(text, w), "%s: no %q in\n%s", file, w, text)
		}
	}
}

func TestAnApplicationMustAskForTheSidecarMode(t *testing.T) {
	_, err := render(loadApplication(t), map[string]any{"adbuffer": map[string]any{"mode": "edge"}})
	if err == nil || !strings.Contains(err.Error(), "set mode: sidecar for the adbuffer subchart") {
		t.Errorf("got %v", err)
	}
}
