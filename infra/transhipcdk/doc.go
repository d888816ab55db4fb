// Package transhipcdk holds the AWS CDK constructs of an installation of Tranship.
//
//   - [NewMigration]: the key that wraps stored secrets, and the function that
//     migrates the database. Deployed and invoked first.
//   - [NewTranship]: API, functions, queues, schedules, alarms. Takes any
//     PostgreSQL.
//   - [NewPlatform]: network, Aurora, and what Fargate needs; optional.
//
// They can stand in one stack or in several; the program in the folder above puts
// each into a stack of its own (docs/deploy.md). The names and messages that
// functions and constructs agree on are in docs/aws.md.
//
// Properties are plain Go values, and the zero value of each means its stated
// default. Constructors panic with the text of [Props.Validate] on values that
// cannot work, as constructs of the CDK do.
package transhipcdk
