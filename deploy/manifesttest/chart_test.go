package manifesttest

import (
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"

	"adbuffer/internal/test/testsupport"
)

func TestSchemaRefusesWrongValues(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"replicas: 3", "additional properties 'replicas' not allowed"},
		{"mode: daemonset", "must be one of 'edge', 'sidecar'"},
		{"image: {tag: a b}", "/image/tag"},
		{"config: {ssps: []}", "/config/ssps"},
		{"admin: {port: 90}", "/admin/port"},
		{"admin: {token: secret}", "'token' not allowed"},
		{"edge: {replicas: -1}", "/edge/replicas"},
		{"edge: {drain: {timeoutSeconds: 20s}}", "/edge/drain/timeoutSeconds"},
		{"edge: {maxBufferedBytes: 256Mi}", "/edge/maxBufferedBytes"},
		{"edge: {resources: {limits: {memory: null}}}", "/edge/resources/limits"},
		{"edge: {autoscaling: {minReplicas: 0}}", "/edge/autoscaling/minReplicas"},
		{"edge: {podDisruptionBudget: {maxUnavailable: 100%}}", "/edge/podDisruptionBudget/maxUnavailable"},
		{"edge: {networkPolicy: {clients: [{}]}}", "/edge/networkPolicy/clients/0"},
		{"sidecar: {socketDirectory: run/adbuffer}", "/sidecar/socketDirectory"},
		{"sidecar: {socketMode: '660'}", "/sidecar/socketMode"},

		// Templates check the rules that a schema cannot express.
		{"config: {server: {listen: ':80'}}", "config.server.listen: the chart sets it so that it fits the pod; use the value edge.port"},
		{"config: {server: {drain: {delay: 1s}}}", "use the value edge.drain or sidecar.drain"},
		{"config: {admin: {token_file: /x}}", "use the value admin.tokenSecret"},
		{"edge: {autoscaling: {minReplicas: 13}}", "must not be above maxReplicas"},
		{"edge: {autoscaling: {cpuUtilization: 0, poolSaturation: 0}}", "set cpuUtilization or poolSaturation"},
	} {
		v, err := chartutil.ReadValues([]byte(c.values))
		testsupport.NoError(t, err)
		_, _, err = renderChart(v)
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
		_, text, err := renderChart(values(t, file))
		testsupport.NoError(t, err)
		for _, w := range want {
			testsupport.True(t, strings.Contains(text, w), "%s: no %q in\n%s", file, w, text)
		}
	}
}

func TestAnApplicationMustAskForTheSidecarMode(t *testing.T) {
	_, _, err := render(loadApplication(t), map[string]any{"adbuffer": map[string]any{"mode": "edge"}})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "set mode: sidecar for the adbuffer subchart"), "got %v", err)
}
