// Package manifesttest tests deploy/kubernetes and deploy/helm. It renders them with Helm's
// own code and decodes them as an API server would. It checks that every reference has
// its target, and runs the result. It also checks the JSON Schema of the configuration, with a library that
// the product does not use.
package manifesttest
