// Package manifesttest holds the tests of deploy/kubernetes and deploy/helm: what
// is shipped there is rendered with kustomize's and Helm's own code, decoded as an
// API server would, held against what it refers to, and run.
package manifesttest
