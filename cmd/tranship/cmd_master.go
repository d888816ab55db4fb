package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/control/secrets"
)

func (a *app) masterRotate() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "rotate-master", Short: "Put a new master key before those of the master key file",
		Long: `Put a new master key before those of the master key file. Servers that begin then
encrypt with it and wrap what is stored anew; servers that run find it when they
need it. API keys stay valid. Restart the servers one by one, and once all of them
have begun anew, remove the older keys from the file.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := secrets.RotateKeyFile(file)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			_, err = fmt.Fprintf(a.stdout, "%s begins with the master key %s; restart the servers\n", file, k.Current())
			return err
		},
	}
	c.Flags().StringVar(&file, "master-key-file", ".tranship/master.key", "file of the master keys")
	return c
}
