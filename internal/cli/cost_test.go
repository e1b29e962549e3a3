package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/cost"
)

// costManifest is what the tests look at of deploy/kubernetes/cost-cronjob.yaml, all kinds of
// object in one.
type costManifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Data       map[string]string
	Spec       struct {
		Schedule          string
		TimeZone          string `yaml:"timeZone"`
		ConcurrencyPolicy string `yaml:"concurrencyPolicy"`
		JobTemplate       struct {
			Spec struct {
				ActiveDeadlineSeconds int `yaml:"activeDeadlineSeconds"`
				Template              struct {
					Spec struct {
						RestartPolicy string `yaml:"restartPolicy"`
						Containers    []struct {
							Args         []string
							VolumeMounts []struct {
								Name      string
								MountPath string `yaml:"mountPath"`
							} `yaml:"volumeMounts"`
						}
						Volumes []struct {
							Name                  string
							ConfigMap             struct{ Name string } `yaml:"configMap"`
							PersistentVolumeClaim struct {
								ClaimName string `yaml:"claimName"`
							} `yaml:"persistentVolumeClaim"`
						}
					}
				}
			}
		} `yaml:"jobTemplate"`
	}
}

// TestCostCronJob: the manifest can be decoded, its command line is one that this program takes,
// and what it names is in the manifest.
func TestCostCronJob(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/cost-cronjob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]costManifest{}
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m costManifest
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if m.Metadata.Name == "" || m.Metadata.Namespace != "monitoring" || m.APIVersion == "" {
			t.Errorf("an object without a name, another namespace or no version: %+v", m)
		}
		objects[m.Kind+" "+m.Metadata.Name] = m
	}
	job, ok := objects["CronJob spillway-cost"]
	if !ok || len(objects) != 3 {
		t.Fatalf("the manifest has %d objects", len(objects))
	}
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	if job.Spec.ConcurrencyPolicy != "Forbid" || pod.RestartPolicy != "Never" || len(strings.Fields(job.Spec.Schedule)) != 5 ||
		len(pod.Containers) != 1 {
		t.Fatalf("the job is %+v", job.Spec)
	}
	args := pod.Containers[0].Args
	app := kingpin.New("spillway", "")
	app.Terminate(nil)
	costCommand(&Env{Ctx: context.Background(), Stdout: io.Discard, Stderr: io.Discard, App: app, LogConfig: &promslog.Config{}}, app)
	if name, err := app.Parse(args); err != nil || name != "cost" {
		t.Fatalf("%q: %v", args, err)
	}
	value := func(flag string) string {
		for _, a := range args {
			if v, ok := strings.CutPrefix(a, flag+"="); ok {
				return v
			}
		}
		t.Errorf("%s is not given", flag)
		return ""
	}
	zone, err := time.LoadLocation(value("--timezone"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := time.LoadLocation(job.Spec.TimeZone)
	if err != nil || other.String() != "Etc/UTC" || zone != time.UTC {
		t.Errorf("Kubernetes starts the job by the clock of %s, and days of %s are billed: %v", job.Spec.TimeZone, zone, err)
	}
	now := time.Date(2026, 11, 2, 4, 30, 0, 0, zone)
	r, err := cost.ParseRange(value("--from"), value("--to"), zone, now)
	if err != nil || len(r.Days()) != 1 || r.Days()[0].Name != "2026-11-01" {
		t.Errorf("at %s it bills %v: %v", now, r.Days(), err)
	}
	for _, d := range dimensions([]string{value("--by")}) {
		if !slices.Contains(cost.Dimensions, d) {
			t.Errorf("there is no dimension %s", d)
		}
	}
	timeout, err := time.ParseDuration(value("--timeout"))
	if err != nil || timeout.Seconds() >= float64(job.Spec.JobTemplate.Spec.ActiveDeadlineSeconds) {
		t.Errorf("the job is ended before %s, its own --timeout: %v", timeout, err)
	}
	// The files it names lie in volumes that it has.
	volumes := map[string]string{} // path to object
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			switch {
			case v.Name != m.Name:
			case v.ConfigMap.Name != "":
				volumes[m.MountPath] = "ConfigMap " + v.ConfigMap.Name
			default:
				volumes[m.MountPath] = "PersistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
			}
		}
	}
	if o, ok := objects[volumes[filepath.Dir(value("--out"))]]; !ok || o.Kind != "PersistentVolumeClaim" {
		t.Errorf("--out=%s lies in no volume of %v", value("--out"), volumes)
	}
	file := value("--directory")
	if _, err := cost.ParseDirectory([]byte(objects[volumes[filepath.Dir(file)]].Data[filepath.Base(file)])); err != nil ||
		objects[volumes[filepath.Dir(file)]].Data[filepath.Base(file)] == "" {
		t.Errorf("--directory=%s: %v", file, err)
	}
}
