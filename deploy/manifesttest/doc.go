// Package manifesttest tests deploy/kubernetes and deploy/helm. It renders the charts with Helm's own code, decodes all
// manifests as an API server would, checks that every reference has its target, and runs adbuffer as the containers in
// them would. It also checks the JSON Schemas of the configuration and of its tests, with a library that adbuffer
// does not use.
package manifesttest
