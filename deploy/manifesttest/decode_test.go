package manifesttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// kinds are the API groups that the manifests may use; any other kind is an error.
var kinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

// strict is the API server's own decoder with fieldValidation=Strict. Unknown and repeated fields
// are errors, and so is a field whose name differs in case.
var strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, kinds, kinds, json.SerializerOptions{Yaml: true, Strict: true})

// objects are the objects of a set of manifests, by kind.
type objects struct {
	deployments     []*appsv1.Deployment
	jobs            []*batchv1.Job
	services        []*corev1.Service
	configMaps      []*corev1.ConfigMap
	serviceAccounts []*corev1.ServiceAccount
	autoscalers     []*autoscalingv2.HorizontalPodAutoscaler
	budgets         []*policyv1.PodDisruptionBudget
	networkPolicies []*networkingv1.NetworkPolicy
	podMonitors     []*monitoringv1.PodMonitor

	all []metav1.Object
}

func decode(text string) (*objects, error) {
	o := &objects{}
	docs := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return nil, err
		}
		if !hasContent(string(doc)) {
			continue
		}
		decoded, kind, err := strict.Decode(doc, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", kind, err, doc)
		}
		if err := o.add(decoded); err != nil {
			return nil, err
		}
	}
}

// hasContent reports whether a document holds more than comments.
func hasContent(doc string) bool {
	for line := range strings.Lines(doc) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

func (o *objects) add(decoded runtime.Object) error {
	switch v := decoded.(type) {
	case *appsv1.Deployment:
		o.deployments = append(o.deployments, v)
	case *batchv1.Job:
		o.jobs = append(o.jobs, v)
	case *corev1.Service:
		o.services = append(o.services, v)
	case *corev1.ConfigMap:
		o.configMaps = append(o.configMaps, v)
	case *corev1.ServiceAccount:
		o.serviceAccounts = append(o.serviceAccounts, v)
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.autoscalers = append(o.autoscalers, v)
	case *policyv1.PodDisruptionBudget:
		o.budgets = append(o.budgets, v)
	case *networkingv1.NetworkPolicy:
		o.networkPolicies = append(o.networkPolicies, v)
	case *monitoringv1.PodMonitor:
		o.podMonitors = append(o.podMonitors, v)
	default:
		return fmt.Errorf("a %T: nothing here checks what it refers to", v)
	}
	o.all = append(o.all, decoded.(metav1.Object))
	return nil
}

func mustDecode(t *testing.T, text string) *objects {
	t.Helper()
	o, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestEveryObjectDecodesStrictly(t *testing.T) {
	for name, text := range everySet(t) {
		o, err := decode(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(o.all) < 2 {
			t.Errorf("%s: %d objects, which is hardly all", name, len(o.all))
		}
	}
}

func TestEdgeHasEveryKind(t *testing.T) {
	for _, name := range []string{"overlay edge", "values-full.yaml"} {
		o := mustDecode(t, everySet(t)[name])
		for kind, n := range map[string]int{
			"Deployment": len(o.deployments), "Service": len(o.services), "ConfigMap": len(o.configMaps), "ServiceAccount": len(o.serviceAccounts),
			"HorizontalPodAutoscaler": len(o.autoscalers), "PodDisruptionBudget": len(o.budgets), "NetworkPolicy": len(o.networkPolicies), "PodMonitor": len(o.podMonitors),
		} {
			if n == 0 {
				t.Errorf("%s: no %s", name, kind)
			}
		}
	}
}
