-- name: sign_on
select outcome, person
  from retoma.sign_on(:issuer, :subject, :email, :is_email_verified, :name, :may_create, :tenants::int[], :roles::text[], :address);

-- name: unlink_person
update retoma.people
   set oidc_issuer = null, oidc_subject = null
 where id = :person and oidc_subject is not null
returning id;
