! A stencil loop that cleans each row when its inner loop has written it, in Fortran: what Wu does
! to the loop psinv of NAS MG (its Listing 6).
program psinv
  use, intrinsic :: iso_c_binding
  use terrace_prestores
  implicit none

  integer, parameter :: n = 64
  real(c_double), target :: u(n, n, n), r(n, n, n)
  type(site_counts), target :: counts(2)
  type(c_ptr) :: rows
  integer :: i1, i2, i3
  integer(c_size_t) :: sites

  rows = site_at("rows of u" // c_null_char, "psinv.f90" // c_null_char, 31)
  u = 1
  r = 2
  do i3 = 2, n - 1
    do i2 = 2, n - 1
      do i1 = 2, n - 1
        u(i1, i2, i3) = u(i1, i2, i3) + 0.5d0 * r(i1, i2, i3) &
          + 0.25d0 * (r(i1 - 1, i2, i3) + r(i1 + 1, i2, i3))
      end do
      call prestore_at(rows, c_loc(u(2, i2, i3)), int((n - 2) * 8, c_size_t), terrace_clean)
    end do
  end do
  call prestore(c_loc(r), 64_c_size_t, terrace_demote)

  if (any(abs(u(2:n-1, 2:n-1, 2:n-1) - 3) > 1d-12)) error stop "psinv.f90: wrong sums"
  sites = prestore_sites(c_loc(counts), 2_c_size_t)
  if (sites /= 1) error stop "psinv.f90: expected one site"
  if (counts(1)%calls /= (n - 2)**2) error stop "psinv.f90: expected a call for each row"
  if (counts(1)%line /= 31) error stop "psinv.f90: expected the line of the site"
  print "(a, i0, a, i0, a)", "rows of u: ", counts(1)%calls, " calls, ", counts(1)%bytes, " bytes"
end program
