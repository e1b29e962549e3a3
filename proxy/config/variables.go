package config

import (
	"regexp"
	"strings"
)

var (
	// reference is a value that some programs take from elsewhere.
	reference = regexp.MustCompile(`(?i)\$\{(file|env):`)
	// variable is a value that is nothing but one of a shell.
	variable = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
	// within is such a one anywhere in a header, which mostly follows a word such as Bearer.
	within  = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
	headers = regexp.MustCompile(`\.(http_)?headers\.`)
)

// filed are the keys beside which another one names a file with the value.
var filed = map[string]string{
	"password": "password_file", "username": "username_file", "credentials": "credentials_file", "client_secret": "client_secret_file",
	"ca": "ca_file", "cert": "cert_file", "key": "key_file",
	"bearer_token": "bearer_token_file",
}

// unfilled says what to do about a value that should have been filled in; "" where it is one like
// any other. Rules of relabelling have such words of their own: what a regular expression found.
// The value may be a part of a secret, so it is not told.
func unfilled(path, value string) string {
	whole := variable.MatchString(value) && !strings.Contains(path, "relabel_configs")
	if !whole && !reference.MatchString(value) && !(headers.MatchString(path) && within.MatchString(value)) {
		return ""
	}
	const not = "values like ${file:…} and ${NAME} are not filled in here; "
	key := path[strings.LastIndexByte(path, '.')+1:]
	// Of a tenant's password there is only the hash, which stands in the file.
	if file := filed[key]; file != "" && !strings.Contains(path, "tenants[") || key == "bearer_token" {
		return not + "name the file by " + file
	}
	return not + "write the value out, or have the file filled in first (envsubst)"
}
