// Package kubernetes has the files of this folder, which are generated from the chart
// (deploy/helm), for programs that apply them: spillway adopt. It holds their text, some 10 kB, and
// nothing else.
package kubernetes

import "embed"

// Objects are the objects of kustomization.yaml, several in a file where a kind has several.
//
//go:embed deployment.yaml poddisruptionbudget.yaml role.yaml rolebinding.yaml service.yaml serviceaccount.yaml
var Objects embed.FS

// Configuration is spillway.yaml: its groups are an example, and what else it says fits the
// objects.
//
//go:embed spillway.yaml
var Configuration []byte
