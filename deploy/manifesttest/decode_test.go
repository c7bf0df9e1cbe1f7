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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"adbuffer/internal/test/testsupport"
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

// objects are the objects of a set of manifests.
type objects []runtime.Object

// of returns the objects of one kind.
func of[T runtime.Object](all objects) (found []T) {
	for _, o := range all {
		if v, ok := o.(T); ok {
			found = append(found, v)
		}
	}
	return found
}

func decode(text string) (all objects, err error) {
	docs := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
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
		all = append(all, decoded)
	}
}

// hasContent reports whether a document holds more than comments.
func hasContent(doc string) bool {
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		if line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

func mustDecode(t *testing.T, text string) objects {
	t.Helper()
	o, err := decode(text)
	testsupport.NoError(t, err)
	return o
}
