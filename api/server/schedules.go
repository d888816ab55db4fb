package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListSchedules(context.Context, rest.ListSchedulesRequestObject) (rest.ListSchedulesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreateSchedule(context.Context, rest.CreateScheduleRequestObject) (rest.CreateScheduleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeleteSchedule(context.Context, rest.DeleteScheduleRequestObject) (rest.DeleteScheduleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetSchedule(context.Context, rest.GetScheduleRequestObject) (rest.GetScheduleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) UpdateSchedule(context.Context, rest.UpdateScheduleRequestObject) (rest.UpdateScheduleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListNextOccurrences(context.Context, rest.ListNextOccurrencesRequestObject) (rest.ListNextOccurrencesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListOccurrences(context.Context, rest.ListOccurrencesRequestObject) (rest.ListOccurrencesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) PauseSchedule(context.Context, rest.PauseScheduleRequestObject) (rest.PauseScheduleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ResumeSchedule(context.Context, rest.ResumeScheduleRequestObject) (rest.ResumeScheduleResponseObject, error) {
	return nil, errNotHere
}
