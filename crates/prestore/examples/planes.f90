! Every second plane of a grid is cleared and the others copied past the caches, in Fortran: none of
! them is read again soon. And what this processor does with cleaned lines.
program planes
  use, intrinsic :: iso_c_binding
  use terrace_prestores
  implicit none

  integer, parameter :: n = 64
  integer(c_size_t), parameter :: plane = n * n * 8
  real(c_double), target :: u(n, n, n), next(n, n, n)
  type(site_counts), target :: counts(4)
  type(retention) :: found
  type(c_ptr) :: cleared, copied
  integer :: i3

  cleared = site_at("cleared" // c_null_char, "planes.f90" // c_null_char, 17)
  copied = site_at("copied" // c_null_char, "planes.f90" // c_null_char, 18)
  u = 3
  next = 1
  call prestore_least(plane)
  do i3 = 1, n, 2
    call prestore_fill_at(cleared, c_loc(next(1, 1, i3)), 0, plane)
    call prestore_copy_at(copied, c_loc(next(1, 1, i3 + 1)), c_loc(u(1, 1, i3 + 1)), plane)
  end do
  ! Fewer bytes than the least are stored plainly, and do not count.
  call prestore_fill_at(cleared, c_loc(u), 0, plane - 8)
  call prestore_least(0_c_size_t)
  ! At no site.
  call prestore_fill(c_loc(u(1, 1, 2)), 0, plane)
  call prestore_copy(c_loc(u(1, 1, 3)), c_loc(next), plane)
  call prestore_fence()

  if (any(abs(next(:, :, 1:n:2)) > 0)) error stop "planes.f90: expected cleared planes"
  if (any(abs(next(:, :, 2:n:2) - 3) > 0)) error stop "planes.f90: expected copied planes"
  if (abs(sum(u(:, :, 1:3)) - 3) > 0) error stop "planes.f90: expected one number that was left"
  if (prestore_sites(c_loc(counts), 4_c_size_t) /= 2) error stop "planes.f90: expected two sites"
  if (any(counts(1:2)%calls /= n / 2)) error stop "planes.f90: expected a call for every second plane"
  if (any(counts(1:2)%bytes /= n / 2 * plane)) error stop "planes.f90: expected their bytes"

  call prestore_try(found)
  if (found%verdict < terrace_keeps .or. found%verdict > terrace_unclear) error stop "planes.f90: no verdict"
  if (found%cached_ns <= 0 .or. found%evicted_ns <= 0) error stop "planes.f90: expected times"
  print "(a, i0, a, i0, a)", "planes: ", counts(1)%calls, " cleared, ", counts(2)%calls, " copied"
end program
