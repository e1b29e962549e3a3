package config

import (
	"io"
	"path/filepath"
	"strconv"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// CheckFiles checks whether the files that the configuration names can be read on this machine:
// certificates, keys, passwords and headers under http_client, tokens and keys of tenants, and the
// plans of drop_rules. The error is Problems, without lines. Load does not do this, since a file
// may be checked on another machine than the one it is for, and since credentials that are rotated
// may be absent for a moment; what reads them reports it then.
func (c *Config) CheckFiles() error {
	problems := c.fileProblems()
	if len(problems) == 0 {
		return nil
	}
	return problems.sorted(0)
}

// Check is Load and CheckFiles at once, with all the problems of both, and the configuration as far
// as it could be read: nil where it could not. It also looks at the places where Spillway would
// write; more, where not nil, adds the problems that only other packages can find.
func Check(path string, more func(*Config) Problems) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return check(data, filepath.Dir(path), more)
}

// CheckFrom is Check of what a reader has; relative paths in it start from the working directory.
func CheckFrom(r io.Reader, more func(*Config) Problems) (*Config, error) {
	data, err := readFrom(r)
	if err != nil {
		return nil, err
	}
	return check(data, ".", more)
}

func check(data []byte, dir string, more func(*Config) Problems) (*Config, error) {
	cfg, d, problems := decode(data, dir, time.Now())
	if d == nil {
		return nil, problems
	}
	found := cfg.fileProblems()
	for _, b := range d.broken { // what was refused as a whole names files, too
		b.client.SetDirectory(dir)
		clientFiles(b.client, b.path, found.unreadable)
	}
	if more != nil {
		found = append(found, more(cfg)...)
	}
	never, absent := cfg.places()
	found = append(found, never...)
	for i := range absent {
		absent[i].Line = d.line(absent[i].Path)
	}
	cfg.Notes = append(cfg.Notes, absent...).sorted(0)
	for i := range found {
		found[i].Line = d.line(found[i].Path)
	}
	if problems := append(d.problems, found...); len(problems) > 0 {
		return cfg, problems.sorted(d.over)
	}
	return cfg, nil
}

// unreadable adds a problem where a file cannot be read.
func (ps *Problems) unreadable(path, file string) {
	if file == "" {
		return
	}
	f, err := plainfile.Open(file)
	if err != nil {
		*ps = append(*ps, Problem{Path: path, Message: "cannot be read: " + err.Error()})
		return
	}
	_ = f.Close() // opened for reading only
}

// CheckRegular checks that what the configuration names as a file is a regular one, where it
// exists: opening a named pipe would wait for a writer, and credentials are opened in the middle of
// a request. The error is Problems, without lines.
func (c *Config) CheckRegular() error {
	var problems Problems
	c.files(func(path, file string) {
		if file == "" {
			return
		}
		if err := plainfile.Check(file); err != nil {
			problems = append(problems, Problem{Path: path, Message: err.Error()})
		}
	})
	if len(problems) == 0 {
		return nil
	}
	return problems.sorted(0)
}

// CheckNewFiles checks, as CheckFiles does, the files that old does not name: one of those may be
// away for a moment, a new one that cannot be read is a mistake. The error is Problems, without
// lines.
func (c *Config) CheckNewFiles(old *Config) error {
	known := map[string]bool{}
	old.files(func(_, file string) { known[file] = true })
	var problems Problems
	c.files(func(path, file string) {
		if !known[file] {
			problems.unreadable(path, file)
		}
	})
	if len(problems) == 0 {
		return nil
	}
	return problems.sorted(0)
}

func (c *Config) fileProblems() Problems {
	var problems Problems
	c.files(problems.unreadable)
	return problems
}

// files calls check for each file that the configuration names.
func (c *Config) files(check func(path, file string)) {
	for i := range c.Groups {
		from, path := &c.Groups[i].ShardsFrom, "groups["+strconv.Itoa(i)+"].shards_from"
		clientFiles(&from.HTTPClient, path+".http_client", check)
		for j := range from.Kubernetes {
			p := path + ".kubernetes_sd_configs[" + strconv.Itoa(j) + "]"
			check(p+".kubeconfig_file", from.Kubernetes[j].KubeconfigFile)
			clientFiles(&from.Kubernetes[j].HTTPClient, p+".http_client", check)
		}
		for j := range c.Groups[i].Shards {
			for k := range c.Groups[i].Shards[j].Replicas {
				path := "groups[" + strconv.Itoa(i) + "].shards[" + strconv.Itoa(j) + "].replicas[" + strconv.Itoa(k) + "].http_client"
				clientFiles(&c.Groups[i].Shards[j].Replicas[k].HTTPClient, path, check)
			}
		}
	}
	for i := range c.Tenants {
		check("tenants["+strconv.Itoa(i)+"].bearer_token_file", c.Tenants[i].BearerTokenFile)
	}
	check("jwt.jwks_file", c.JWT.JWKSFile)
	clientFiles(&c.JWT.HTTPClient, "jwt.http_client", check)
	for i, file := range c.DropRules.Plan {
		check("drop_rules.plan["+strconv.Itoa(i)+"]", file)
	}
}

// clientFiles calls check for each file of the client's settings.
func clientFiles(h *commonconfig.HTTPClientConfig, path string, check func(path, file string)) {
	tls := func(t *commonconfig.TLSConfig, path string) {
		check(path+".ca_file", t.CAFile)
		check(path+".cert_file", t.CertFile)
		check(path+".key_file", t.KeyFile)
	}
	tls(&h.TLSConfig, path+".tls_config")
	if a := h.BasicAuth; a != nil {
		check(path+".basic_auth.username_file", a.UsernameFile)
		check(path+".basic_auth.password_file", a.PasswordFile)
	}
	if a := h.Authorization; a != nil {
		check(path+".authorization.credentials_file", a.CredentialsFile)
	}
	if o := h.OAuth2; o != nil {
		check(path+".oauth2.client_secret_file", o.ClientSecretFile)
		check(path+".oauth2.client_certificate_key_file", o.ClientCertificateKeyFile)
		tls(&o.TLSConfig, path+".oauth2.tls_config")
	}
	if h.HTTPHeaders != nil {
		for name, header := range h.HTTPHeaders.Headers {
			for i, file := range header.Files {
				check(join(path+".http_headers", name)+".files["+strconv.Itoa(i)+"]", file)
			}
		}
	}
}
